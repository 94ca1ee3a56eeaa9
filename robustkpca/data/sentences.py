"""Labelled sentences, one a line, as SST-5 lies: the class, a space, the words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing
from robustkpca.specs import DataSpec, fingerprint

FILES = ("stsa.fine.test", "stsa.fine.dev", "test.txt", "dev.txt")
"""What is looked for in a folder, the first that is there."""
_LINE = re.compile(r"(\d{1,4})[ \t]+(\S.*)")


@dataclass(frozen=True)
class Texts:
    """Some sentences that a tensor of rows can choose from.

    Args:
        lines: The sentences.
    """

    lines: tuple[str, ...]

    def __getitem__(self, rows: Tensor) -> Texts:
        return Texts(tuple(self.lines[row] for row in rows.tolist()))


@dataclass(frozen=True, eq=False)
class Sentences:
    """A file of labelled sentences. Fields as the properties of `robustkpca.data.dataset.Dataset`, and the sentences.

    Args:
        spec: What it is.
        ids: ``FILE/000012``, counted from 0.
        labels: The class of each.
        class_names: The numbers of the classes.
        notices: About how it was recognised.
        lines: The sentences.
    """

    spec: DataSpec
    ids: tuple[str, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    notices: tuple[str, ...]
    lines: tuple[str, ...]

    def check(self, positions: Sequence[int], preprocessing: Preprocessing) -> dict[int, str]:
        """Return nothing: the sentences are in memory already."""
        return {}

    def read(self, positions: Sequence[int], preprocessing: Preprocessing) -> Texts:
        """Return some sentences."""
        return Texts(tuple(self.lines[position] for position in positions))


def open_sentences(source: str | Path, classes: int | None = None) -> Sentences:
    """Open labelled sentences.

    Args:
        source: A UTF-8 file, or a folder with one of `FILES`.
        classes: Number of classes, where the last ones may not occur; ``None`` counts what is there.

    Raises:
        BadValue: If nothing is there, or a line has no class in front.
    """
    path = Path(source)
    notices: tuple[str, ...] = ()
    if path.is_dir():
        found = [path / name for name in FILES if (path / name).is_file()]
        if not found:
            raise BadValue(
                f"data {str(source)!r}: no sentences in it; expected {' or '.join(FILES)}, or name the file itself"
            )
        path, notices = found[0], (f"{source}: reading {found[0].name}",)
    try:
        lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise BadValue(f"data {str(source)!r}: {reason}; expected labelled sentences") from None
    parts = [_LINE.fullmatch(line) for line in lines]
    wrong = next((number for number, part in enumerate(parts, start=1) if part is None), None)
    if wrong is not None or not parts:
        shown = f"line {wrong} is {lines[wrong - 1][:40]!r}" if wrong else "it is empty"
        raise BadValue(f"data {str(source)!r}: {shown}; expected a class, a space and a sentence")
    labels = tuple(int(part[1]) for part in parts if part)
    texts = tuple(part[2].strip() for part in parts if part)
    count = max(labels) + 1
    if classes is not None and classes < count:
        raise BadValue(
            f"data {str(source)!r} has a class {count - 1}, but {classes} classes are wanted, counted from 0"
        )
    total = classes or count
    spec = DataSpec(
        path.name, "sentences", len(texts), total, fingerprint([list(texts), list(labels)]), path=str(source)
    )
    ids = tuple(f"{path.name}/{row:06d}" for row in range(len(texts)))
    return Sentences(spec, ids, labels, tuple(map(str, range(total))), notices, texts)
