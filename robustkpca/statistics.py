"""How sure a number is, and whether two models differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # annotations only
    import numpy


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


def clopper_pearson(successes: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a proportion, both ends in [0, 1]; never narrower than promised, often wider.

    Args:
        successes: From 0 to ``count``.
        count: At least 1.
        confidence: Probability that the interval covers the truth, at least.

    Source:
        Clopper and Pearson 1934; computed by ``scipy.stats.binomtest``.
    """
    from scipy.stats import binomtest

    interval = binomtest(successes, count).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def paired_difference(
    both: int, first_only: int, second_only: int, neither: int, *, confidence: float = 0.95, resamples: int = 20_000
) -> tuple[float, float]:
    """Return the bootstrap interval of the difference of two proportions on common samples, from -1 to 1.

    Drawing samples with their outcomes is drawing the four counts from a multinomial distribution, which is what is done; the
    interval is that of the percentiles. The generator is seeded, so that the same counts give the same interval.

    Args:
        both: Samples that both models get right.
        first_only: Samples that only the first model gets right.
        second_only: Samples that only the second model gets right.
        neither: Samples that neither gets right.
        confidence: Probability that the interval covers the truth.
        resamples: How often is drawn.

    Source:
        Efron 1979, "Bootstrap methods: another look at the jackknife".
    """
    import numpy

    count = both + first_only + second_only + neither
    shares = numpy.array([both + neither, first_only, second_only]) / count
    drawn = numpy.random.default_rng(0).multinomial(count, shares, size=resamples)
    tail = (1 - confidence) / 2
    low, high = numpy.quantile((drawn[:, 1] - drawn[:, 2]) / count, [tail, 1 - tail])
    return float(low), float(high)


def bootstrap(
    values: numpy.ndarray[Any, Any],
    statistic: Callable[..., Any],
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of any statistic over samples.

    Args:
        values: ``(N, ...)``, one row per sample.
        statistic: Maps rows ``(M, ...)`` to a number.
        confidence: Probability that the interval covers the truth.
        resamples: How often is drawn; the generator is seeded.

    Source:
        Efron 1979, "Bootstrap methods: another look at the jackknife".
    """
    import numpy

    generator, count, tail = numpy.random.default_rng(0), len(values), (1 - confidence) / 2
    drawn = [statistic(values[generator.integers(0, count, count)]) for _ in range(resamples)]
    low, high = numpy.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def holm(pvalues: Sequence[float]) -> list[float]:
    """Return p-values adjusted for how many there are, in the order given; their family-wise error is controlled.

    Args:
        pvalues: From 0 to 1.

    Source:
        Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    order = sorted(range(len(pvalues)), key=pvalues.__getitem__)
    adjusted, largest = [0.0] * len(pvalues), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(pvalues) - place) * pvalues[index]))
        adjusted[index] = largest
    return adjusted


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
