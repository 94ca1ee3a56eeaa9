"""Two models on the samples that both have met: a test whether one is better."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from robustkpca.errors import BadValue, unknown
from robustkpca.records import Verdict
from robustkpca.statistics import holm, mcnemar, paired_difference

if TYPE_CHECKING:  # annotations only
    import pandas

LEVEL = 0.05
"""Adjusted p-values below it are called a difference."""


@dataclass(frozen=True)
class Comparison:
    """Two models under one threat on one data set.

    Args:
        threat: Its short text.
        data: Id of the data set.
        seed: The seed of both.
        count: Samples that both have met and could be judged on.
        first: Share of them that survive with the first model, from 0 to 1.
        second: The same for the second.
        low: Lower end of the 95 % interval of ``first - second``.
        high: Upper end.
        first_only: Samples that survive with the first model alone.
        second_only: Samples that survive with the second model alone.
        p: Exact McNemar test.
        adjusted: ``p`` after Holm's correction for the number of comparisons made.
    """

    threat: str
    data: str
    seed: int
    count: int
    first: float
    second: float
    low: float
    high: float
    first_only: int
    second_only: int
    p: float
    adjusted: float = 1.0

    @property
    def finding(self) -> str:
        """Which model is better, if that is shown."""
        if self.adjusted >= LEVEL:
            return "no difference shown"
        return "first is better" if self.first > self.second else "second is better"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the finding."""
        return asdict(self) | {"finding": self.finding}

    def to_row(self) -> dict[str, str]:
        """Return what a person reads, in percent."""
        return {
            "threat": self.threat,
            "n": str(self.count),
            "first": f"{100 * self.first:.1f}",
            "second": f"{100 * self.second:.1f}",
            "difference": f"{100 * (self.first - self.second):+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]",
            "only first": str(self.first_only),
            "only second": str(self.second_only),
            "p": f"{self.p:.2g}",
            "p (Holm)": f"{self.adjusted:.2g}",
            "finding": self.finding,
        }


def compare(frame: pandas.DataFrame, first: str, second: str) -> list[Comparison]:
    """Compare two models under every threat, data set and seed that both have records of.

    Samples whose verdict is ``INVALID`` or ``FAILED`` for either are left out.

    Args:
        frame: Records as `robustkpca.read` returns them.
        first: Name or id of a model, or the beginning of its id.
        second: The same of another.

    Raises:
        UserError: If a model is not there, has records of several sets of weights, or the two share no samples.
    """
    ids = [_model(frame, name) for name in (first, second)]
    if ids[0] == ids[1]:
        raise BadValue(f"{first!r} and {second!r} are the same model {ids[0]}; name two different ones")
    frame = frame[~frame["verdict"].isin([Verdict.INVALID.value, Verdict.FAILED.value])]
    sides = [frame[frame["model"] == one] for one in ids]
    key = ["threat", "threat_version", "threat_label", "data", "seed"]
    joined = sides[0].merge(sides[1], on=[*key, "sample"], suffixes=("_first", "_second"))
    found = []
    for group, part in joined.groupby(key, observed=True, sort=True):
        a, b = (part[f"verdict_{side}"].astype(str) == Verdict.SURVIVED.value for side in ("first", "second"))
        both, only_a, only_b = int((a & b).sum()), int((a & ~b).sum()), int((~a & b).sum())
        low, high = paired_difference(both, only_a, only_b, len(part) - both - only_a - only_b)
        name, data, seed = str(group[2]), str(group[3]), int(str(group[4]))
        values = (len(part), float(a.mean()), float(b.mean()), low, high, only_a, only_b, mcnemar(only_a, only_b))
        found.append(Comparison(name, data, seed, *values))
    if not found:
        raise BadValue(
            f"{first} and {second} have no samples in common; score both under the same threats on the same data"
        )
    adjusted = holm([one.p for one in found])
    return [Comparison(**asdict(one) | {"adjusted": p}) for one, p in zip(found, adjusted, strict=True)]


def _model(frame: pandas.DataFrame, name: str) -> str:
    pairs = frame[["model", "model_name"]].drop_duplicates()
    known = [(str(model), str(label)) for model, label in pairs.itertuples(index=False, name=None)]
    fitting = sorted({model for model, label in known if name in (model, label)})
    fitting = fitting or sorted({model for model, _ in known if name and model.startswith(name)})
    if not fitting:
        raise unknown("model", name, sorted({label for _, label in known}))
    if len(fitting) > 1:
        raise BadValue(f"{name!r} names {len(fitting)} models: {', '.join(fitting)}; write one of these ids")
    return fitting[0]
