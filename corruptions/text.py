"""Changed words and letters, each line from a random stream of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from numpy.random import Generator

from robustkpca.draws import Draws
from robustkpca.errors import BadValue

WORD = re.compile(r"[^\W_](?:[^\W_]|['\-_*@])*")
"""Letters and digits, and inside or after them apostrophes, hyphens, underscores, asterisks and at-signs."""
REPLACEMENT = "AAA"
_STOP = """
i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves he him his himself
she she's her hers herself it it's its itself they them their theirs themselves what which who whom this that that'll
these those am is are was were be been being have has had having do does did doing a an the and but if or because as
until while of at by for with about against between into through during before after above below to from up down in
out on off over under again further then once here there when where why how all any both each few more most other some
such no nor not only own same so than too very s t can will just don don't should should've now d ll m o re ve y ain
aren aren't couldn couldn't didn didn't doesn doesn't hadn hadn't hasn hasn't haven haven't isn isn't ma mightn
mightn't mustn mustn't needn needn't shan shan't shouldn shouldn't wasn wasn't weren weren't won won't wouldn wouldn't
"""
STOP_WORDS = frozenset(_STOP.split())
"""The English list of NLTK, which `word_swap` leaves alone; compared with case, so that ``The`` is no stop word."""
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
Span = tuple[int, int]


def word_swap(texts: Sequence[str], *, draws: Draws, fraction: float = 0.015) -> list[str]:
    """Put AAA in the place of some words that are no stop words.

    A line of ``n`` words gets ``m = max(floor(fraction * n), 1)`` swaps, drawn one after the other, but for the last: that one
    is drawn from the ``c`` swaps that are left and from none at all, so that one line in ``c + 1`` has one less.

    Args:
        texts: One line each.
        draws: One stream for each line.
        fraction: Share of the words, from 0 to 1.

    Returns:
        The changed lines; a line without words to swap stays as it is.

    Source:
        KPCA-S, lm/src_attack/utils/vocabulary.py, by the rules of TextAttack's Augmenter. There no seed is set, and the numbers
        move from run to run; here the line and the seed decide.
    """
    _refuse_share(fraction)

    def swapped(text: str, generator: Generator) -> str:
        words = [match.span() for match in WORD.finditer(text)]
        free = [span for span in words if text[slice(*span)] not in STOP_WORDS and text[slice(*span)] != REPLACEMENT]
        taken: list[Span] = []
        for _ in range(max(int(fraction * len(words)), 1) - 1):
            if free:
                taken.append(free.pop(int(generator.integers(len(free)))))
        choice = int(generator.integers(len(free) + 1))
        if choice < len(free):
            taken.append(free[choice])
        return _replaced(text, taken, lambda word: REPLACEMENT)

    return _each(texts, draws, swapped)


def word_drop(texts: Sequence[str], *, draws: Draws, fraction: float = 0.1) -> list[str]:
    """Leave out a share of the words, at least one, and never all. Arguments as `word_swap`."""

    def dropped(text: str, generator: Generator) -> str:
        words = [match.span() for match in WORD.finditer(text)]
        taken = _some(words, min(_count(fraction, words), len(words) - 1), generator)
        return " ".join(_replaced(text, taken, lambda word: "").split()) if taken else text

    return _each(texts, draws, dropped, fraction)


def character_swap(texts: Sequence[str], *, draws: Draws, fraction: float = 0.1) -> list[str]:
    """Exchange two unequal neighbouring letters in a share of the words, at least in one. Arguments as `word_swap`."""

    def changed(word: str, generator: Generator) -> str:
        places = [place for place in range(len(word) - 1) if word[place] != word[place + 1]]
        place = places[int(generator.integers(len(places)))]
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]

    return _in_words(texts, draws, fraction, lambda word: len(set(word)) > 1, changed)


def character_delete(texts: Sequence[str], *, draws: Draws, fraction: float = 0.1) -> list[str]:
    """Leave out one letter in a share of the words, at least in one; words of one letter stay. Arguments as `word_swap`."""

    def changed(word: str, generator: Generator) -> str:
        place = int(generator.integers(len(word)))
        return word[:place] + word[place + 1 :]

    return _in_words(texts, draws, fraction, lambda word: len(word) > 1, changed)


def keyboard(texts: Sequence[str], *, draws: Draws, fraction: float = 0.1) -> list[str]:
    """Hit a neighbouring key, on an American keyboard, in a share of the words, at least in one. Arguments as `word_swap`."""

    def changed(word: str, generator: Generator) -> str:
        places = [place for place, letter in enumerate(word) if neighbours(letter)]
        place = places[int(generator.integers(len(places)))]
        near = neighbours(word[place])
        return word[:place] + near[int(generator.integers(len(near)))] + word[place + 1 :]

    return _in_words(texts, draws, fraction, lambda word: any(map(neighbours, word)), changed)


def neighbours(letter: str) -> str:
    """Return the letters whose keys touch that of a letter, in its case; nothing for what is no English letter."""
    for row, keys in enumerate(_KEYS):
        place = keys.find(letter.lower())
        if place < 0:
            continue
        beside = keys[max(0, place - 1) : place] + keys[place + 1 : place + 2]
        above = _KEYS[row - 1][place : place + 2] if row else ""
        below = _KEYS[row + 1][max(0, place - 1) : place + 1] if row + 1 < len(_KEYS) else ""
        return (beside + above + below).upper() if letter.isupper() else beside + above + below
    return ""


def _in_words(
    texts: Sequence[str],
    draws: Draws,
    fraction: float,
    able: Callable[[str], bool],
    change: Callable[[str, Generator], str],
) -> list[str]:
    """Change a share of the words, drawn among those that can be changed."""

    def changed(text: str, generator: Generator) -> str:
        words = [match.span() for match in WORD.finditer(text)]
        free = [span for span in words if able(text[slice(*span)])]
        taken = _some(free, min(_count(fraction, words), len(free)), generator)
        return _replaced(text, taken, lambda word: change(word, generator))

    return _each(texts, draws, changed, fraction)


def _each(
    texts: Sequence[str], draws: Draws, change: Callable[[str, Generator], str], fraction: float = 0.0
) -> list[str]:
    _refuse_share(fraction)
    return [change(text, generator) for text, generator in zip(texts, draws.generators(), strict=True)]


def _refuse_share(fraction: float) -> None:
    if not 0 <= fraction <= 1:
        raise BadValue(f"fraction is {fraction}; expected a share of the words from 0 to 1")


def _count(fraction: float, words: Sequence[Span]) -> int:
    return max(int(fraction * len(words)), 1)


def _some(spans: Sequence[Span], count: int, generator: Generator) -> list[Span]:
    """Draw some places without putting any back."""
    if count < 1:
        return []
    return [spans[place] for place in sorted(generator.choice(len(spans), count, replace=False).tolist())]


def _replaced(text: str, spans: Sequence[Span], change: Callable[[str], str]) -> str:
    """Change what stands at some places, and leave everything around it."""
    parts, last = [], 0
    for start, end in sorted(spans):
        parts += [text[last:start], change(text[start:end])]
        last = end
    return "".join([*parts, text[last:]])
