"""The one door: a name becomes a thing, as late as possible.

A plug-in package announces tables through packaging entry points. Each table maps names to `Entry`s, each entry says
where the thing lies, and nothing is imported before it is asked for. The built-in wings come through the same door:

    [project.entry-points."robustkpca.attacks"]
    robustkpca = "robustkpca.attacks:CATALOGUE"        names stand bare:  pgd
    mypackage  = "mypackage.plugin:ATTACKS"            names are prefixed: mypackage/pgd
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any, TypeVar

from robustkpca.errors import BadValue, Unusable, UserError, unknown

Thing = TypeVar("Thing")
GROUPS = ("models", "attacks", "corruptions", "tasks", "benchmarks", "leaderboards")
OWN = "robustkpca"
RESERVED = ("published", "timm")
"""Prefixes that mean something else in the text of a threat or a model."""
_SINGULAR = {"leaderboards": "board", "tasks": "task"}
_PREFIX = re.compile(r"[A-Za-z0-9_][\w.-]*")
_NAME = re.compile(r"[^()\s,=@:]+")


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

    def __post_init__(self) -> None:
        if isinstance(self.version, bool) or not isinstance(self.version, int):
            raise BadValue(f"entry {self.target!r}: version is {self.version!r}; expected a whole number")
        if not isinstance(self.tags, tuple | list):
            raise BadValue(
                f"entry {self.target!r}: tags is {self.tags!r}; expected a tuple of words, such as ('linf',)"
            )

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
        except (Exception, SystemExit) as error:  # a stranger's module may fail in any way
            expected = isinstance(error, ImportError | AttributeError)
            reason = str(error) if expected else f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise Unusable(f"{target!r} from {self.origin or 'a plug-in'} cannot be imported: {reason}") from error

    def function(self, *, published: bool = False) -> Callable[..., Any]:
        """Import the thing, which has to be a function.

        Raises:
            Unusable: If it cannot be imported, or is none.
        """
        thing: Callable[..., Any] = self.load(published=published)
        if not callable(thing):
            raise self._other(self.published if published else self.target, thing, "function")
        return thing

    def value(self, kind: type[Thing]) -> Thing:
        """Import the thing, which has to be of a certain type.

        Raises:
            Unusable: If it cannot be imported, or is of another type.
        """
        thing = self.load()
        if not isinstance(thing, kind):
            raise self._other(self.target, thing, kind.__name__)
        return thing

    def _other(self, target: str, thing: object, wanted: str) -> Unusable:
        kind, owner = type(thing).__name__, self.origin or "a plug-in"
        return Unusable(f"{target!r} from {owner} is of type {kind}; expected a {wanted}")


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
    points = sorted(entry_points(group=f"robustkpca.{group}"), key=lambda point: (not _is_own(point), point.name))
    if not any(map(_is_own, points)):
        raise Unusable("robustkpca is not installed in this environment: run 'pip install -e .' in its checkout")
    announced: dict[str, str] = {}
    for point in points:
        package = point.dist.name if point.dist else ""
        if announced.setdefault(point.name, package) != package:
            owner = announced[point.name] or "another package"
            _leave_out(f"{package}: {point.name}", f"{owner} announces under the same name; rename the entry point")
            continue
        for name, entry in _table(point).items():
            found[name if _is_own(point) else f"{point.name}/{name}"] = entry
    return found


def _is_own(point: EntryPoint) -> bool:
    """Tell our own tables from those of a stranger that calls itself by our name."""
    return point.name == OWN and point.dist is not None and point.dist.name == OWN


def _table(point: EntryPoint) -> dict[str, Entry]:
    """Read the table behind an entry point, each entry stamped with its package."""
    try:
        if point.name in RESERVED or not _PREFIX.fullmatch(point.name):
            raise BadValue(f"the entry point {point.name!r} cannot stand before a name; rename it")
        table = dict(point.load())
        strange = [name for name in table if not isinstance(name, str) or not _NAME.fullmatch(name)]
        if strange:
            raise BadValue(f"{strange[0]!r} cannot be written as a name; expected one without spaces and ( ) , = @ :")
        origin = f"{point.dist.name}=={point.dist.version}" if point.dist else point.name
        return {name: _stamped(entry, origin) for name, entry in table.items()}
    except (Exception, SystemExit) as error:  # a stranger's package may fail in any way; the rest must stay usable
        if _is_own(point):
            raise
        _leave_out(point.name, " ".join(f"{point.value.partition(':')[0]}: {type(error).__name__}: {error}".split()))
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
