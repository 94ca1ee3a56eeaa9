"""Threat models: what is done to every sample, as text and as a value.

clean                                   nothing
pgd(steps=20)@linf:8/255                an attack within a budget
published/pgd@linf:6/255                the same, as the published evaluation ran it
pyautoattack/apgd_ce@linf:8/255         the authors' own code
torchattacks/PGD(steps=10)@linf:8/255   another library's
fab_t@linf:min                          the smallest harmful change, whatever its size
fog:3                                   a corruption at a severity
word-swap(fraction=0.015)               a corruption whose strength is an option
autoattack@linf:8/255                   several attacks in turn, each on what the ones before left standing
worst-of(fog:3,pgd@linf:8/255)          the same for any threats
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from robustkpca import registry
from robustkpca.budget import Budget
from robustkpca.calls import Call, complete, split
from robustkpca.errors import BadValue, unknown

GIVEN = frozenset({"model", "images", "texts", "labels", "budget", "draws", "severity"})
"""What the runner hands to attacks and corruptions; everything else in their signature is an option."""

OFFICIAL = "pyautoattack"
"""The package of the authors of AutoAttack; its attacks are registered as ``pyautoattack/NAME`` under our names."""
THEIRS_ALREADY = (("reach_edges", False),)
"""Options of ours that do what the package does always."""
SEQUENCE = "sequence"
"""Tag of an attack whose function takes the budget and its options, and returns the texts of threats to be tried in turn."""

MINIMUM_NORM = "minimum-norm"
"""Tag of an attack that looks for the smallest harmful change, and may be given a budget without a radius."""

UNGRADED = "ungraded"
"""Tag of a corruption without severities; its strength is one of its options."""

WORST_OF = "worst-of"


class Protocol(Enum):
    """How an attack is run and judged; the two are never mixed in one column."""

    PIXEL = "pixel"
    """Budget in [0, 1] pixels, clipped, true labels, every candidate judged."""
    PUBLISHED = "published"
    """As the published evaluations ran: normalised units, no clip, own predictions, the last candidate only."""


@dataclass(frozen=True)
class ThreatModel:
    """One threat; ``str()`` gives its canonical text, which is the key everywhere.

    Args:
        call: The attack or corruption with all its options, defaults included.
        budget: What an attack may change, ``None`` for corruptions and ``clean``.
        severity: 1 to 5 for corruptions that have severities, ``None`` otherwise.
        protocol: How it is run and judged.
        members: The threats that are tried in turn, where there are several.
        written: The options that differ from the defaults, for short labels.
        entry: Where the function lies; ``None`` for ``clean`` and ``worst-of``.
    """

    call: Call
    budget: Budget | None = None
    severity: int | None = None
    protocol: Protocol = Protocol.PIXEL
    members: tuple[ThreatModel, ...] = ()
    written: Call = field(default=Call("clean"), compare=False)
    entry: registry.Entry | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str, *, protocol: Protocol | None = None) -> ThreatModel:
        """Read the text of a threat and fill in the defaults of its options.

        Args:
            text: See the forms above.
            protocol: For attacks whose text does not say; ``pixel`` where ``None``.

        Raises:
            UnknownName: If no attack or corruption has that name, or an option is unknown.
            BadValue: If the budget or severity is missing or wrong, or the attack has no such protocol.
        """
        if not isinstance(text, str):
            raise BadValue(f"threat {text!r}: expected a text such as 'pgd@linf:8/255'")
        rest = text.strip()
        if rest.startswith(f"{WORST_OF}("):
            return cls._worst_of(text, rest, protocol)
        prefix = f"{Protocol.PUBLISHED.value}/"
        if rest.startswith(prefix):
            rest, protocol = rest[len(prefix) :], Protocol.PUBLISHED
        named, at, budget_text = rest.partition("@")
        named, _, severity_text = named.partition(":")
        call = Call.parse(named)
        if call.name == "clean":
            if call.arguments or at or named != rest:
                raise BadValue(f"threat {text!r}: clean takes no options and no budget; write 'clean'")
            return cls(Call("clean"))
        attacks, corruptions = registry.entries("attacks"), registry.entries("corruptions")
        if call.name in attacks:
            if not at or severity_text:
                raise BadValue(f"threat {text!r}: an attack needs a budget, no severity; write '{call}@linf:8/255'")
            budget = Budget.parse(budget_text, bounded=protocol is not Protocol.PUBLISHED)
            return cls._attack(text, call, budget, protocol or Protocol.PIXEL, attacks[call.name])
        if call.name in corruptions:
            graded = UNGRADED not in corruptions[call.name].tags
            if at or protocol is Protocol.PUBLISHED:
                wanted = f"a corruption takes a severity, not a budget; write '{call}:3'"
                raise BadValue(f"threat {text!r}: {wanted if graded else f'{call.name} takes no budget; write {call}'}")
            return cls._corruption(text, call, severity_text, corruptions[call.name])
        if "," in text.partition("(")[0]:
            raise BadValue(f"threat {text!r}: several threats are separated by spaces, not commas")
        raise unknown("threat", call.name, ["clean", *attacks, *corruptions])

    @classmethod
    def _attack(cls, text: str, call: Call, budget: Budget, protocol: Protocol, entry: registry.Entry) -> ThreatModel:
        norms = [tag for tag in entry.tags if tag in ("linf", "l2", "l1", "l0")]
        if norms and budget.norm.value not in norms:
            raise BadValue(f"threat {text!r}: {call.name} supports {', '.join(norms)}, not {budget.norm.value}")
        if budget.minimal and MINIMUM_NORM not in entry.tags:
            able = ", ".join(sorted(name for name, e in registry.entries("attacks").items() if MINIMUM_NORM in e.tags))
            raise BadValue(
                f"threat {text!r}: {call.name} needs a radius such as '8/255'; {able} look for the smallest change"
            )
        published = protocol is Protocol.PUBLISHED
        if published and not entry.published:
            known = ", ".join(sorted(name for name, e in registry.entries("attacks").items() if e.published))
            raise BadValue(f"threat {text!r}: {call.name} has no published form; {known} have one")
        function = entry.function(published=published)
        full = complete(call, function, "attack", given=GIVEN)
        members: tuple[ThreatModel, ...] = ()
        if SEQUENCE in entry.tags:
            members = tuple(cls.parse(member) for member in function(budget=budget, **full.arguments))
        return cls(full, budget, None, protocol, members, _written(full, function), entry)

    @classmethod
    def _worst_of(cls, text: str, rest: str, protocol: Protocol | None) -> ThreatModel:
        if not rest.endswith(")"):
            raise BadValue(f"threat {text!r}: the bracket is not closed; expected {WORST_OF}(THREAT,THREAT,...)")
        members = tuple(cls.parse(part, protocol=protocol) for part in split(rest[len(WORST_OF) + 1 : -1]))
        if len(set(members)) < 2:
            raise BadValue(f"threat {text!r}: expected at least two different threats in {WORST_OF}(THREAT,THREAT,...)")
        protocols = {member.protocol for member in members if member.call.name != "clean"}
        if len(protocols) > 1:
            raise BadValue(f"threat {text!r}: it mixes the pixel and the published protocol; use one of them")
        return cls(Call(WORST_OF), protocol=protocols.pop() if protocols else Protocol.PIXEL, members=members)

    @classmethod
    def _corruption(cls, text: str, call: Call, severity: str, entry: registry.Entry) -> ThreatModel:
        if UNGRADED in entry.tags:
            if severity:
                raise BadValue(f"threat {text!r}: {call.name} has no severities; write '{call}'")
        elif severity not in ("1", "2", "3", "4", "5"):
            raise BadValue(f"threat {text!r}: expected a severity from 1 to 5, such as '{call}:3'")
        function = entry.function()
        full = complete(call, function, "corruption", given=GIVEN)
        return cls(full, None, int(severity) if severity else None, Protocol.PIXEL, (), _written(full, function), entry)

    def __str__(self) -> str:
        if self.call.name == WORST_OF:
            return f"{WORST_OF}({','.join(map(str, self.members))})"
        return self._text(self.call)

    @property
    def label(self) -> str:
        """The text without the options that have their default value."""
        if self.call.name == WORST_OF:
            return f"{WORST_OF}({','.join(member.label for member in self.members)})"
        return self._text(self.written)

    @property
    def version(self) -> int:
        """Version of the implementation, with those of the members; 1 for ``clean``."""
        return (self.entry.version if self.entry else 1) + sum(member.version for member in self.members)

    @property
    def parts(self) -> tuple[ThreatModel, ...]:
        """The members, and theirs; the threat itself where there are none."""
        return tuple(part for member in self.members for part in member.parts) or (self,)

    @property
    def engine(self) -> str:
        """The package whose implementation runs; empty for ours and for plug-ins."""
        return self.entry.engine if self.entry else ""

    def function(self) -> Callable[..., Any]:
        """Return the attack or corruption itself.

        Raises:
            BadValue: If this is ``clean``, where nothing is done, or ``worst-of``, where the members have them.
        """
        if self.entry is None:
            raise BadValue(f"threat '{self.call.name}' has no function")
        return self.entry.function(published=self.protocol is Protocol.PUBLISHED)

    def _text(self, call: Call) -> str:
        prefix = "published/" if self.protocol is Protocol.PUBLISHED else ""
        suffix = f"@{self.budget}" if self.budget else f":{self.severity}" if self.severity else ""
        return f"{prefix}{call}{suffix}"


def official(threat: ThreatModel) -> ThreatModel:
    """Return the same threat as the authors' own package runs it.

    Options keep their names. ``clean`` stays as it is, and every member of a ``worst-of`` is replaced.

    Args:
        threat: One of ours, in the ``pixel`` protocol.

    Raises:
        BadValue: If the package has no such attack, or the attack there lacks an option that is written.
    """
    if threat.call.name == WORST_OF:
        return ThreatModel.parse(f"{WORST_OF}({','.join(official(member).label for member in threat.members)})")
    if threat.entry is None or threat.engine == OFFICIAL:
        return threat
    known = [name for name in registry.entries("attacks") if name.startswith(f"{OFFICIAL}/")]
    name = f"{OFFICIAL}/{threat.call.name}"
    if name not in known or threat.protocol is Protocol.PUBLISHED:
        theirs = ", ".join(one.removeprefix(f"{OFFICIAL}/") for one in known)
        raise BadValue(
            f"threat '{threat.label}' has no official counterpart; {OFFICIAL} has {theirs}, in the pixel protocol"
        )
    options = {key: value for key, value in threat.written.arguments.items() if (key, value) not in THEIRS_ALREADY}
    return ThreatModel.parse(f"{Call(name, options)}@{threat.budget}")


def threat(text: str) -> ThreatModel:
    """Read the text of a threat; short for `ThreatModel.parse`."""
    return ThreatModel.parse(text)


def spread(text: str) -> list[str]:
    """Return the five severities of a corruption that is named without one; any other text as it is.

    Args:
        text: Such as ``fog`` or ``fog(constants=cifar)``.
    """
    entry = registry.entries("corruptions").get(text.strip().partition("(")[0])
    if entry is not None and UNGRADED not in entry.tags and ":" not in text and "@" not in text:
        return [f"{text.strip()}:{severity}" for severity in range(1, 6)]
    return [text]


def list_threats(pattern: str = "") -> list[str]:
    """Return the names of ``clean`` and all attacks and corruptions that contain a pattern."""
    names = ["clean", *sorted(registry.entries("attacks")), *sorted(registry.entries("corruptions"))]
    return [name for name in names if pattern.lower() in name.lower()]


def _written(full: Call, function: Callable[..., Any]) -> Call:
    defaults = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    return Call(full.name, {name: value for name, value in full.arguments.items() if value != defaults[name]})
