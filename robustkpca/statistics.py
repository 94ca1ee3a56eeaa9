"""How sure a number is, and whether two models differ."""

from __future__ import annotations


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
