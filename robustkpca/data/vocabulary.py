"""Words and their numbers, as the word-level language models count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from robustkpca.errors import BadValue
from robustkpca.specs import fingerprint

if TYPE_CHECKING:  # annotations only
    from torch import Tensor

END, UNKNOWN = "<eos>", "<unk>"


@dataclass(frozen=True)
class Vocabulary:
    """The words of a model, in the order of their numbers.

    Args:
        words: With ``<eos>``, which ends every line, and ``<unk>``, which stands for every word that is not there.

    Raises:
        BadValue: If one of these two is missing, or a word occurs twice.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        lacking = [word for word in (END, UNKNOWN) if word not in self.words]
        if lacking:
            raise BadValue(
                f"a vocabulary of {len(self.words)} words has no {' and no '.join(lacking)}; add a line with it"
            )
        if len(set(self.words)) < len(self.words):
            raise BadValue(f"a vocabulary has {len(self.words) - len(set(self.words))} words twice; keep one of each")

    @classmethod
    def counted(cls, lines: Iterable[str]) -> Vocabulary:
        """Count the words of a training text: ``<eos>`` first, then the most frequent, of equally frequent ones the earlier.

        Source:
            KPCA-S, lm/utils/vocabulary.py: split at white space, case kept, nothing left out.
        """
        counts = Counter(word for line in lines for word in line.split())
        return cls((END, *(word for word, _ in counts.most_common() if word != END)))

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        """Read a list, one word a line, or count a training text, which has several in some lines.

        Raises:
            BadValue: If the file cannot be read.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BadValue(f"vocabulary {str(path)!r}: {reason}; expected a UTF-8 text, one word a line") from None
        if any(len(line.split()) > 1 for line in lines):
            return cls.counted(lines)
        return cls(tuple(line.strip() for line in lines if line.strip()))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, line: str) -> list[int]:
        """Return the numbers of the words of a line, and that of ``<eos>``."""
        unknown = self.numbers[UNKNOWN]
        return [*(self.numbers.get(word, unknown) for word in line.split()), self.numbers[END]]

    def decode(self, numbers: Sequence[int]) -> list[str]:
        """Return the words of some numbers."""
        return [self.words[number] for number in numbers]

    def digest(self) -> Tensor:
        """Return the sha256 of the list, ``(32,)``, uint8."""
        import torch

        return torch.frombuffer(bytearray.fromhex(fingerprint(list(self.words))), dtype=torch.uint8)
