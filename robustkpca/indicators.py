"""Signs in the records that an attack failed, not that a model is robust.

Each looks at the samples of one model on one data set with one seed, under everything it met in the ``pixel`` protocol. The
``published`` protocol reproduces faults on purpose and is left alone.

Source:
    The failures are those of Athalye et al. 2018, arXiv:1802.00420, section 3.1; Carlini et al. 2019, arXiv:1902.06705,
    section 5; and Pintor et al. 2022, arXiv:2106.09947, section 3. The thresholds are ours, except that of a black box
    that wins, which AutoAttack has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from robustkpca import registry
from robustkpca.budget import Budget
from robustkpca.calls import Call
from robustkpca.errors import UserError
from robustkpca.masking import KINDS, SHARE, useless
from robustkpca.records import Verdict
from robustkpca.statistics import mcnemar, wilson

if TYPE_CHECKING:  # annotations only
    import pandas

FLAGS = {
    "random output": "add a threat with eot, such as 'autoattack(version=rand)'",
    "coarse logits": "shift the logits towards zero, or use --dtype float64",
    "context output": "make the output of an image depend on that image alone",
    "probabilities": "remove the final softmax",
    "not finite": "mend the network, or use --dtype float64",
    "zero gradients": "add square and a transfer attack, which need no gradient",
    "nonfinite gradients": "mend the network, and add square, which needs no gradient",
    "saturated loss": "add apgd_dlr or fab_t, whose losses do not saturate",
    "black box wins": "add square(queries=20000) and a transfer attack, and rank by the worst of all",
    "one step wins": "add apgd_ce(restarts=5) and apgd_dlr, and rank by the worst of all",
    "budget without effect": "add apgd_ce(restarts=5) and square at both radii",
    "unbounded survivors": "add square and apgd_dlr at the same radius, and look at the gradients",
    "silent success": "add an attack that returns the best it has seen, such as apgd_ce",
    "worse than its best": "add an attack that returns the best it has seen, such as apgd_ce",
}
"""Every flag that holds a row out of the ranking, with what to add or mend."""
LEAST = 3
"""Samples that it takes; one or two that an attack misses are chance."""
POINTS = 0.002
"""Share of the samples beyond which a weaker attack may not win (AutoAttack, ``check_square_sr``)."""
SATURATED = 87.0
"""Margin in logits from which on the gradient of a cross-entropy is below the smallest normal float32."""
UNBOUNDED = Fraction(1, 2)
"""An L-infinity radius that turns every image into the same grey."""
_SINGLE = {"fgsm", "fgsm_t", "torchattacks/FGSM", "torchattacks/FFGSM", "noise", "torchattacks/GN"}


@dataclass(frozen=True)
class Flag:
    """One sign that a row cannot be believed.

    Args:
        name: One of `FLAGS`.
        evidence: What was seen, with numbers.
    """

    name: str
    evidence: str

    @property
    def advice(self) -> str:
        """What to add or mend."""
        return FLAGS[self.name]

    def __str__(self) -> str:
        return f"{self.name}: {self.evidence}, {self.advice}"

    @classmethod
    def parse(cls, text: str) -> Flag | None:
        """Read the text of a flag; ``None`` for remarks that are none."""
        name, colon, rest = text.partition(": ")
        return cls(name, rest.removesuffix(f", {FLAGS[name]}")) if colon and name in FLAGS else None


@dataclass(frozen=True)
class Met:
    """What became of the samples under one attack.

    Args:
        label: Short text of the threat.
        call: Name and all options.
        budget: What could be changed.
        tags: From the registry.
        survived: Ids.
        broken: Ids.
        frame: The records.
    """

    label: str
    call: Call
    budget: Budget
    tags: tuple[str, ...]
    survived: frozenset[str]
    broken: frozenset[str]
    frame: pandas.DataFrame

    @property
    def gradient(self) -> bool:
        """Whether it follows gradients to any harmful class."""
        return "gradient" in self.tags and not {"sequence", "black-box", "targeted"} & set(self.tags)

    @property
    def many_steps(self) -> bool:
        """Whether it follows gradients for more than one step."""
        return self.gradient and self.call.name not in _SINGLE and self.call.arguments.get("steps") != 1


def flags(frame: pandas.DataFrame) -> list[Flag]:
    """Return every sign of a failed attack, in the order of `FLAGS`.

    Args:
        frame: Records of one model on one data set with one seed, as `robustkpca.store.read` returns them.
    """
    met = list(_met(frame))
    found: list[Flag] = []
    for text in sorted({one for texts in frame["flags"].unique() for one in str(texts).split("; ")}):
        flag = Flag.parse(text)
        if flag is not None:
            found.append(flag)
    for indicator in _INDICATORS:
        found += indicator(met)
    order = list(FLAGS)
    return sorted(found, key=lambda flag: order.index(flag.name))


def _met(frame: pandas.DataFrame) -> Iterator[Met]:
    attacks = registry.entries("attacks")
    for text, part in frame.groupby("threat", observed=True, sort=True):
        named, at, budget = str(text).rpartition("@")
        try:
            call = Call.parse(named) if at and not named.startswith(("published/", "worst-of(")) else None
            if call is None or call.name not in attacks:
                continue
            radius = Budget.parse(budget)
        except UserError:
            continue
        verdicts, samples = part["verdict"].astype(str), part["sample"].astype(str)
        survived = frozenset(samples[verdicts == Verdict.SURVIVED.value])
        broken = frozenset(samples[verdicts == Verdict.BROKEN.value])
        label = str(part["threat_label"].iloc[0])
        yield Met(label, call, radius, attacks[call.name].tags, survived, broken, part)


def _wins(winner: Met, losers: Sequence[Met], those: str) -> Iterator[str]:
    """Say how many samples an attack breaks that none of the others does, where that is more than a few."""
    common = frozenset.intersection(*(loser.survived | loser.broken for loser in losers))
    common &= winner.survived | winner.broken
    alone = len(common & winner.broken & frozenset.intersection(*(loser.survived for loser in losers)))
    if alone >= LEAST and wilson(alone, len(common))[0] > POINTS:
        yield f"{winner.label} breaks {alone} of {len(common)} samples that {those}"


def _black_box_wins(met: Sequence[Met]) -> Iterator[Flag]:
    for one in met:
        losers = [other for other in met if other.many_steps and other.budget == one.budget]
        if "black-box" in one.tags and "sequence" not in one.tags and "gradient" not in one.tags and losers:
            for evidence in _wins(one, losers, f"survive {_named(losers)}"):
                yield Flag("black box wins", evidence)


def _one_step_wins(met: Sequence[Met]) -> Iterator[Flag]:
    for one in met:
        losers = [other for other in met if other.many_steps and other.budget == one.budget]
        if one.gradient and not one.many_steps and losers:
            for evidence in _wins(one, losers, f"survive {_named(losers)}"):
                yield Flag("one step wins", evidence)


def _budget_without_effect(met: Sequence[Met]) -> Iterator[Flag]:
    for small in met:
        for large in met:
            same = small.call == large.call and small.budget.norm is large.budget.norm
            if not (same and small.many_steps and large.budget.radius > small.budget.radius):
                continue
            back, forth = len(small.broken & large.survived), len(small.survived & large.broken)
            common = len((small.broken | small.survived) & (large.broken | large.survived))
            worse = back > forth and mcnemar(back, forth) < 0.05
            flat = large.budget.radius >= 2 * small.budget.radius and len(large.broken) <= len(small.broken)
            stuck = flat and min(len(small.broken), len(large.survived)) > 0.05 * common
            if worse or stuck:
                numbers = f"{len(small.broken)} and {len(large.broken)} of {common}"
                yield Flag("budget without effect", f"{small.label} and {large.label} break {numbers} samples")


def _unbounded_survivors(met: Sequence[Met]) -> Iterator[Flag]:
    far = [one for one in met if one.many_steps and one.budget.norm.value == "linf" and one.budget.radius >= UNBOUNDED]
    if far:
        left = frozenset.intersection(*(one.survived for one in far))
        tried = len(far[0].survived | far[0].broken)
        if len(left) >= max(1, SHARE * tried):
            yield Flag("unbounded survivors", f"{len(left)} of {tried} samples survive {_named(far)}")


def _useless_gradients(met: Sequence[Met]) -> Iterator[Flag]:
    for one in met:
        frame = _standing(one)
        shares = useless([True] * len(frame), {kind: frame[kind] for kind in KINDS if kind in frame})
        for name, share in shares.items():
            yield Flag(name, f"on {share} of the samples that survive {one.label}")


def _saturated_loss(met: Sequence[Met]) -> Iterator[Flag]:
    for one in met:
        if not one.gradient or "margin" not in one.frame:
            continue
        saturated = _standing(one)["margin"].dropna() > SATURATED
        if len(saturated) and float(saturated.mean()) > SHARE:
            share = f"{100 * float(saturated.mean()):.0f} %"
            yield Flag(
                "saturated loss", f"margins above {SATURATED:.0f} on {share} of the samples that survive {one.label}"
            )


def _not_finite(met: Sequence[Met]) -> Iterator[Flag]:
    for one in met:
        if "detail" in one.frame:
            count = int(one.frame["detail"].astype(str).str.contains("not finite").sum())
            if count:
                yield Flag("not finite", f"{count} of {len(one.frame)} samples under {one.label}")


def _silent_success(met: Sequence[Met]) -> Iterator[Flag]:
    for one in met:
        if "best_margin" in one.frame:
            count = int((_standing(one)["best_margin"].dropna().astype(float) < -1e-3).sum())
            if count:
                asked = f"{one.label} saw a harmful image within the budget and gave another one back"
                yield Flag("silent success", f"on {count} of {len(one.survived)} surviving samples {asked}")


def _worse_than_its_best(met: Sequence[Met]) -> Iterator[Flag]:
    for one in met:
        if "best_margin" not in one.frame:
            continue
        kept = _standing(one).dropna(subset=["best_margin", "margin"])
        kept = kept[kept["distance"] > 0]  # who found nothing may give the image back as it was
        best = kept["best_margin"].astype(float).clip(lower=0)
        worse = int((kept["margin"] > 1.5 * best + 1e-3).sum())
        if worse >= LEAST and worse > 0.1 * len(kept):
            yield Flag(
                "worse than its best",
                f"on {worse} of {len(kept)} surviving samples {one.label} gave back less than it had seen",
            )


def _standing(one: Met) -> pandas.DataFrame:
    return one.frame[one.frame["verdict"].astype(str) == Verdict.SURVIVED.value]


def _named(several: Sequence[Met]) -> str:
    return " and ".join(one.label for one in several)


_INDICATORS: tuple[Callable[[Sequence[Met]], Iterator[Flag]], ...] = (
    _black_box_wins,
    _one_step_wins,
    _budget_without_effect,
    _unbounded_survivors,
    _useless_gradients,
    _saturated_loss,
    _not_finite,
    _silent_success,
    _worse_than_its_best,
)
