"""The one door: a name becomes a thing, as late as possible.

A plug-in package announces tables through packaging entry points. Each table maps names to `Entry`s, each entry says
where the thing lies, and nothing is imported before it is asked for. The built-in wings come through the same door:

    [project.entry-points."robustkpca.attacks"]
    robustkpca = "robustkpca.attacks:CATALOGUE"        names stand bare:  pgd
    mypackage  = "mypackage.plugin:ATTACKS"            names are prefixed: mypackage/pgd
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

from robustkpca.errors import BadValue, Unusable, UserError, unknown

GROUPS = ("models", "attacks", "corruptions", "tasks", "benchmarks", "leaderboards")
_SINGULAR = {"leaderboards": "board", "tasks": "task"}


@dataclass(frozen=True)
class Entry:
    """Where a thing lies, and what a list says of it without importing it.

    Args:
        target: ``module:attribute``.
        summary: One line.
        source: Paper and year, or what else it follows.
        tags: Words to filter by. An attack names the norms it supports here (``linf``, ``l2``, ``l1``).
        published: ``module:attribute`` of the form in the ``published`` protocol, empty where there is none.
        version: Raised whenever the results change, so that old records are not mistaken for new ones.
        origin: The package that announced it, with its version; filled in by the registry.
        engine: The package whose implementation runs, where it is another one; its version is written down too.
    """

    target: str
    summary: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    published: str = ""
    version: int = 1
    origin: str = ""
    engine: str = ""

    def load(self, *, published: bool = False) -> Any:
        """Import the thing.

        Raises:
            Unusable: If the module or the attribute is not there, or a package that it needs.
        """
        target = self.published if published else self.target
        module, _, attribute = target.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except UserError:
            raise
        except Exception as error:  # a stranger's module may fail in any way
            expected = isinstance(error, ImportError | AttributeError)
            reason = str(error) if expected else f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise Unusable(f"{target!r} from {self.origin or 'a plug-in'} cannot be imported: {reason}") from error


def entries(group: str) -> dict[str, Entry]:
    """List everything announced in a group, by name.

    A plug-in whose table cannot be imported is reported on stderr and left out; the others stay usable.

    Args:
        group: One of `GROUPS`.
    """
    return dict(_entries(group))


def find(group: str, name: str) -> Entry:
    """Look a name up.

    Raises:
        UnknownName: If nothing has that name; the message offers the nearest.
    """
    known = _entries(group)
    if name not in known:
        raise unknown(_SINGULAR.get(group, group[:-1]), name, known)
    return known[name]


def refresh() -> None:
    """Forget what was found, after a package was installed into the running process."""
    _entries.cache_clear()
    _leave_out.cache_clear()


@cache
def _entries(group: str) -> Mapping[str, Entry]:
    if group not in GROUPS:
        raise BadValue(f"registry group {group!r}: expected one of {', '.join(GROUPS)}")
    found: dict[str, Entry] = {}
    points = sorted(
        entry_points(group=f"robustkpca.{group}"), key=lambda point: (point.name != "robustkpca", point.name)
    )
    if not any(point.name == "robustkpca" for point in points):
        raise Unusable("robustkpca is not installed in this environment: run 'pip install -e .' in its checkout")
    for point in points:
        for name, entry in _table(point).items():
            full = name if point.name == "robustkpca" else f"{point.name}/{name}"
            found.setdefault(full, entry)
    return found


def _table(point: EntryPoint) -> dict[str, Entry]:
    """Read the table behind an entry point, each entry stamped with its package."""
    try:
        table = point.load()
        origin = f"{point.dist.name}=={point.dist.version}" if point.dist else point.name
        return {name: _stamped(entry, origin) for name, entry in dict(table).items()}
    except (Exception, SystemExit) as error:  # a stranger's package may fail in any way; the rest must stay usable
        if point.name == "robustkpca":
            raise
        _leave_out(point.name, " ".join(f"{point.module}: {type(error).__name__}: {error}".split()))
        return {}


@cache
def _leave_out(name: str, why: str) -> None:
    """Name a plug-in that cannot be used, once, however many tables it has."""
    print(f"robustkpca: plug-in {name!r} is left out: {why}", file=sys.stderr)


def _stamped(entry: Entry | str, origin: str) -> Entry:
    if isinstance(entry, str):
        entry = Entry(entry)
    return replace(entry, origin=origin)


def installed_version() -> str:
    """Return the version of robustkpca itself."""
    return version("robustkpca")
