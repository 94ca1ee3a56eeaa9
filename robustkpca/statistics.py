"""How sure a number is, and whether two models differ."""

from __future__ import annotations

from collections.abc import Sequence


def wilson(successes: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion, both ends in [0, 1].

    Args:
        successes: From 0 to ``count``.
        count: At least 1.
        confidence: Probability that the interval covers the truth.

    Source:
        Wilson 1927; computed by ``scipy.stats.binomtest``.
    """
    from scipy.stats import binomtest

    interval = binomtest(successes, count).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar(first_only: int, second_only: int) -> float:
    """Return the exact two-sided p-value that two models differ on common samples.

    Args:
        first_only: Samples that only the first model gets right.
        second_only: Samples that only the second model gets right.

    Source:
        McNemar 1947, in the exact binomial form; computed by ``scipy.stats.binomtest``.
    """
    from scipy.stats import binomtest

    discordant = first_only + second_only
    return 1.0 if discordant == 0 else float(binomtest(first_only, discordant).pvalue)


def paired(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired t-test; 1 where the two do not differ at all.

    Args:
        first: One number per sample.
        second: The same for the other model.

    Source:
        Student 1908; computed by ``scipy.stats.ttest_rel``.
    """
    from scipy.stats import ttest_rel

    gaps = {round(a - b, 12) for a, b in zip(first, second, strict=True)}
    if len(gaps) < 2:
        return 0.0 if len(first) > 1 and gaps != {0.0} else 1.0
    return float(ttest_rel(first, second).pvalue)
