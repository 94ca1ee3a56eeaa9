"""From the records of several threats to one number per sample, and from these to the number of a cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from robustkpca.budget import MINIMAL, TOLERANCE
from robustkpca.errors import BadValue
from robustkpca.metrics.corruption_error import ALEXNET, refuse_incomplete
from robustkpca.records import Verdict
from robustkpca.statistics import bootstrap, mcnemar, paired, wilson

if TYPE_CHECKING:  # annotations only
    import pandas

REDUCTIONS = {
    "worst": "a sample counts if it survives all threats",
    "mean": "the mean accuracy over the threats",
    "top5": "the mean share of samples whose true class is among the first five",
    "distance": "the median size of the smallest harmful change, larger is better",
    "mce": "mean corruption error: errors over those of AlexNet, lower is better",
    "perplexity": "the exponential of the mean loss of a token over all samples, lower is better",
}
"""How a column with several threats becomes one number."""
LOWER_IS_BETTER = ("mce", "perplexity")


def refuse_reduction(title: str, threats: Sequence[str], reduce: str, within: Fraction | None = None) -> None:
    """Refuse a reduction that the threats of a column do not allow.

    Args:
        title: Of the column.
        threats: Short texts.
        reduce: One of `REDUCTIONS`.
        within: A radius, for threats without one.

    Raises:
        BadValue: If there is no such reduction, if distances are asked of threats that have a radius, or mCE is
            asked of anything but 15 corruptions at five severities.
    """
    if reduce not in REDUCTIONS:
        raise BadValue(f"column {title!r}: reduce {reduce!r}; expected one of {', '.join(REDUCTIONS)}")
    searching = [threat for threat in threats if threat.endswith(f":{MINIMAL}")]
    if (reduce == "distance" and len(searching) < len(threats)) or (within is not None and not searching):
        raise BadValue(f"column {title!r}: distances need threats without a radius, such as 'fab_t@linf:{MINIMAL}'")
    if reduce == "perplexity" and len(threats) > 1:
        raise BadValue(f"column {title!r}: a perplexity is that of one threat, got {len(threats)}; give each a column")
    if reduce == "mce":
        refuse_incomplete({corruption_of(threat) for threat in threats})
        if len(set(threats)) != 5 * len(ALEXNET):
            raise BadValue(
                f"column {title!r}: mCE needs five severities of each corruption, got {len(threats)} threats"
            )


def corruption_of(threat: str) -> str:
    """Return the name in a threat's text."""
    return re.split(r"[(:@]", threat, maxsplit=1)[0]


def per_sample(
    records: pandas.DataFrame, threats: Sequence[str], reduce: str, within: Fraction | None = None
) -> dict[str, Any]:
    """Return one number for each sample that has a record under every threat; of a perplexity the loss and the tokens.

    Args:
        records: Rows of one model, data set and seed.
        threats: Short texts.
        reduce: One of `REDUCTIONS`.
        within: For threats without a radius: what is broken only beyond this distance survives.
    """
    verdicts = records["verdict"].astype(str)
    if reduce == "perplexity":
        if "tokens" not in records:
            return {}
        parts = records[verdicts == Verdict.MEASURED.value]
        losses = zip(parts["loss"].astype(float), parts["tokens"].astype(float), strict=True)
        return dict(zip(parts["sample"].astype(str), losses, strict=True))
    survived = verdicts == Verdict.SURVIVED.value
    if within is not None:
        survived |= (verdicts == Verdict.BROKEN.value) & (
            records["distance"] > float(within) * (1 + TOLERANCE) + TOLERANCE
        )
    values = survived.astype(float)
    if reduce == "top5":
        values = records["top5"].astype(float)
    if reduce == "distance":
        values = records["distance"].astype(float).where(verdicts != Verdict.MISTAKEN.value, 0.0)
        values = values.where(verdicts != Verdict.SURVIVED.value, numpy.inf)
    if reduce == "mce":
        alexnet = records["threat_label"].astype(str).map(lambda threat: ALEXNET[corruption_of(threat)])
        values = (1 - values) / alexnet
    grouped = values.groupby(records["sample"].astype(str), observed=True)
    sizes = grouped.size()
    made: pandas.Series[float] = grouped.min() if reduce in ("worst", "distance") else grouped.mean()
    return {str(sample): float(value) for sample, value in made[sizes == len(threats)].items()}


def with_interval(values: Sequence[Any], reduce: str) -> tuple[float, float, float]:
    """Return a number with a lower and an upper end.

    These are the mean with Wilson's 95 % interval where all values are 0 or 1, else with the normal one over samples; of
    distances they are the median and the quartiles. A perplexity has the percentile bootstrap interval over samples.

    Args:
        values: At least one, as `per_sample` gives them.
        reduce: One of `REDUCTIONS`.
    """
    array = numpy.asarray(values, numpy.float64)
    if reduce == "perplexity":
        low, high = bootstrap(array, _perplexity)
        return _perplexity(array), low, high
    if reduce == "distance":
        low, middle, high = numpy.quantile(array, [0.25, 0.5, 0.75], method="inverted_cdf")
        return float(middle), float(low), float(high)
    if _binary(array):
        low, high = wilson(int(array.sum()), len(array))
        return float(array.mean()), low, high
    spread = 1.959964 * float(array.std(ddof=1)) / len(array) ** 0.5 if len(array) > 1 else float("inf")
    return float(array.mean()), max(0.0, float(array.mean()) - spread), float(array.mean()) + spread


def _perplexity(parts: NDArray[numpy.float64]) -> float:
    """Return the perplexity of samples ``(N, 2)``, each with its loss in nats and its number of tokens."""
    loss, tokens = parts.sum(0)
    return float(numpy.exp(loss / tokens)) if tokens else float("nan")


def p_value(first: Sequence[Any], second: Sequence[Any], reduce: str) -> float:
    """Return the two-sided p-value that two models differ on common samples.

    It is that of the exact McNemar test for 0 and 1, of the sign test for distances, else of a paired t-test; for
    perplexities over the losses of the samples, since two models are equal there where their sums are.

    Args:
        first: One entry per sample, as `per_sample` gives them.
        second: The same for the other model.
        reduce: One of `REDUCTIONS`.
    """
    a, b = numpy.asarray(first, numpy.float64), numpy.asarray(second, numpy.float64)
    if reduce == "perplexity":
        return paired(a[:, 0].tolist(), b[:, 0].tolist()) if len(a) else 1.0
    if reduce == "distance" or (_binary(a) and _binary(b)):
        return mcnemar(int((a > b).sum()), int((a < b).sum()))
    return paired(a.tolist(), b.tolist())


def _binary(values: NDArray[numpy.float64]) -> bool:
    return bool(((values == 0) | (values == 1)).all())
