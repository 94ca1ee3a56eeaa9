"""What a user did wrong, told apart from what we did wrong.

A command prints one line for the first kind and exits with 2; the second kind keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LISTED = 20
"""Up to so many names are listed where none is near."""


class UserError(Exception):
    """A mistake that the user can mend: its text names the value got, the value wanted and the mend."""


class BadValue(UserError, ValueError):
    """A value that cannot be used."""


class UnknownName(UserError, LookupError):
    """A name that nothing answers to."""


class Unusable(UserError, RuntimeError):
    """A model, file or folder that is not in a state to be used."""


def plain(text: str) -> str:
    """Return a text on one line, with control characters spelled out: a name must not steer the terminal it is shown on."""
    shown = " ".join(text.split())
    return shown if shown.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """Describe an unknown name together with the nearest known ones.

    Args:
        kind: What was looked for, such as ``attack``.
        name: The name that was not found.
        known: Every name that would have been found.
    """
    names = sorted(known)
    nearest = get_close_matches(name, names, n=3, cutoff=0.5)
    if nearest:
        return UnknownName(f"no {kind} named {name!r}. Did you mean {', '.join(map(repr, nearest))}?")
    if len(names) > LISTED:
        nearest = get_close_matches(name, names, n=3, cutoff=0.0)
        return UnknownName(
            f"no {kind} named {name!r}. The nearest of {len(names)} are {', '.join(map(repr, nearest))}."
        )
    listing = ", ".join(names)
    return UnknownName(f"no {kind} named {name!r}. Known: {listing or 'none'}.")
