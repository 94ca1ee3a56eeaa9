"""The bundled text: Jane Austen's Persuasion, one paragraph a line, words and marks apart."""

from __future__ import annotations

import re
from importlib import resources

from robustkpca.errors import BadValue

SPLITS = {"train": (1, 20), "validation": (21, 21), "test": (22, 24)}
"""First and last chapter of each part."""
_TOKENS = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?|\d+|--|[^\sA-Za-z\d]")
_CHAPTER = re.compile(r"^Chapter (\d+)$")


def novel(split: str = "test") -> tuple[str, ...]:
    """Return the paragraphs of some chapters, their headings among them.

    Args:
        split: ``test`` for the last three of 24 chapters, ``validation`` for the one before, ``train`` for the others.

    Raises:
        BadValue: If the split is another one.

    Source:
        Austen 1817, Persuasion, in the public domain; the plain text of Project Gutenberg as the R package janeaustenr has it.
    """
    if split not in SPLITS:
        raise BadValue(f"novel split {split!r}: expected one of {', '.join(SPLITS)}")
    first, last = SPLITS[split]
    text = (resources.files("robustkpca.data") / "persuasion.txt").read_text("utf-8")
    chapter, lines = 0, []
    for paragraph in re.split(r"\n\s*\n", text):
        heading = _CHAPTER.match(paragraph.strip())
        chapter = int(heading[1]) if heading else chapter
        if paragraph.strip() and first <= chapter <= last:
            lines.append(" ".join(_TOKENS.findall(paragraph)))
    return tuple(lines)
