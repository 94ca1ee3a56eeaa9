"""Lines of text as a data set of which every line is a sample, and the text around it the context."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from robustkpca.data.novel import SPLITS, novel
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing
from robustkpca.specs import DataSpec, fingerprint

FILES = ("wiki.test.tokens", "wiki.valid.tokens", "test.txt", "valid.txt")
"""What is looked for in a folder, the first that is there."""
CONTEXT, STRIDE = 256, 1
"""Of the published sliding window."""
_WINDOW = re.compile(r"(?P<source>.+?):(?P<options>(?:context|stride)=[^:/\\]*)$")


@dataclass(frozen=True, eq=False)
class Lines:
    """A text, line by line. Fields as the properties of `robustkpca.data.dataset.Dataset`, and three more.

    Args:
        spec: What it is; window and stride are part of its identity.
        ids: ``NAME/000012``, counted from 0.
        lines: The text, without line ends.
        context: Tokens of one window.
        stride: Tokens that the window moves on by; so many are scored in every window but the first, where all are.
        notices: About how it was recognised.
        class_names: One, since nothing is classified.
    """

    spec: DataSpec
    ids: tuple[str, ...]
    lines: tuple[str, ...]
    context: int
    stride: int
    notices: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ("text",)

    @property
    def labels(self) -> tuple[int, ...]:
        """Nothing is classified; all are 0."""
        return (0,) * len(self.ids)

    def check(self, positions: Sequence[int], preprocessing: Preprocessing) -> dict[int, str]:
        """Return nothing: the text is in memory already."""
        return {}

    def read(self, positions: Sequence[int], preprocessing: Preprocessing) -> Excerpt:
        """Return some lines, in the text that they are part of."""
        return Excerpt(self, tuple(positions))


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a text.

    Args:
        text: All of it.
        positions: Which lines are meant.
    """

    text: Lines
    positions: tuple[int, ...]

    def __getitem__(self, rows: Tensor) -> Excerpt:
        return Excerpt(self.text, tuple(self.positions[row] for row in rows.tolist()))

    def __len__(self) -> int:
        return len(self.positions)


def open_text(source: str | Path) -> Lines:
    """Open a text for a language model.

    Args:
        source: A UTF-8 file, a folder with one of `FILES`, or ``novel``, ``novel/validation`` or ``novel/train``; behind it may
            stand the window, as in ``wikitext-2:context=256,stride=16``.

    Raises:
        BadValue: If nothing is there, it is no text, or the window is none.
    """
    given = str(source)
    match = _WINDOW.match(given)
    place, options = (match["source"], match["options"]) if match else (given, "")
    context, stride = _window(given, options)
    name, _, split = place.partition("/")
    notices: tuple[str, ...] = ()
    if name == "novel" and (split or "test") in SPLITS:
        lines, title, path = novel(split or "test"), place, place
    else:
        file = _file(Path(place))
        lines, title, path = _lines(file), file.parent.name if Path(place).is_dir() else file.name, place
        if Path(place).is_dir():
            notices = (f"{place}: reading {file.name}",)
    return lines_of(lines, name=title, path=path, context=context, stride=stride, notices=notices)


def lines_of(
    lines: Sequence[str],
    *,
    name: str,
    path: str = "",
    context: int = CONTEXT,
    stride: int = STRIDE,
    notices: tuple[str, ...] = (),
) -> Lines:
    """Return lines as a data set.

    Args:
        lines: The text.
        name: Its name.
        path: Where it lies, empty for what comes with the package.
        context: See `Lines`.
        stride: See `Lines`.
        notices: See `Lines`.
    """
    kept = tuple(lines)
    layout = f"lines(context={context},stride={stride})"
    window = "" if (context, stride) == (CONTEXT, STRIDE) else f":context={context},stride={stride}"
    spec = DataSpec(name, layout, len(kept), 1, fingerprint(list(kept)), path=path and f"{path}{window}")
    return Lines(spec, tuple(f"{name}/{row:06d}" for row in range(len(kept))), kept, context, stride, notices)


def _window(source: str, options: str) -> tuple[int, int]:
    chosen = {"context": CONTEXT, "stride": STRIDE}
    for part in options.split(",") if options else []:
        key, _, number = part.partition("=")
        if key not in chosen or not number.isdigit() or int(number) < 1:
            raise BadValue(
                f"data {source!r}: {part!r} is no part of a window; expected such as ':context=256,stride=16'"
            )
        chosen[key] = int(number)
    if chosen["stride"] > chosen["context"]:
        raise BadValue(
            f"data {source!r}: the stride is above the context of {chosen['context']}, so tokens would be left out"
        )
    return chosen["context"], chosen["stride"]


def _file(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise BadValue(
                f"data {str(path)!r}: nothing is there; expected a text, or a folder with {' or '.join(FILES)}"
            )
        return path
    found = [path / name for name in FILES if (path / name).is_file()]
    if not found:
        raise BadValue(f"data {str(path)!r}: no text in it; expected {' or '.join(FILES)}, or name the file itself")
    return found[0]


def _lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise BadValue(f"data {str(path)!r}: {reason}; expected a UTF-8 text") from None
    lines = text.split("\n")
    return tuple(lines[:-1] if lines and not lines[-1] else lines)
