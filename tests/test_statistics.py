"""Intervals and paired tests against the formulas of their papers."""

from __future__ import annotations

import math
from math import comb, sqrt
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from robustkpca.statistics import bootstrap, clopper_pearson, holm, mcnemar, paired_difference, wilson

Z95 = 1.959963984540054


def wilson_by_formula(successes: int, count: int) -> tuple[float, float]:
    """Wilson 1927, solved for the proportion."""
    share = successes / count
    centre = share + Z95**2 / (2 * count)
    spread = Z95 * sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    return (centre - spread) / (1 + Z95**2 / count), (centre + spread) / (1 + Z95**2 / count)


@given(st.integers(1, 2000).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count))))
def test_wilson_is_the_closed_formula(case: tuple[int, int]) -> None:
    assert wilson(*case) == pytest.approx(wilson_by_formula(*case), abs=1e-9)


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"), [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634)]
)
def test_wilson_of_ten_samples(successes: int, count: int, low: float, high: float) -> None:
    assert wilson(successes, count) == pytest.approx((low, high), abs=1e-4)


def test_a_higher_confidence_is_a_wider_interval() -> None:
    low, high = wilson(5, 10, 0.99)
    assert low < wilson(5, 10)[0]
    assert high > wilson(5, 10)[1]


def test_discordant_pairs_5_and_3_cannot_be_told_apart() -> None:
    """R105: 2 * (C(8,0) + C(8,1) + C(8,2) + C(8,3)) / 2**8."""
    assert mcnemar(5, 3) == pytest.approx(0.7265625)


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_twice_the_smaller_binomial_tail(first: int, second: int) -> None:
    count = first + second
    tail = sum(comb(count, k) for k in range(min(first, second) + 1)) / 2**count
    assert mcnemar(first, second) == pytest.approx(min(1.0, 2 * tail))


def test_no_discordant_pair_is_no_difference() -> None:
    assert mcnemar(0, 0) == 1.0


def test_the_order_of_the_models_does_not_matter() -> None:
    assert mcnemar(9, 2) == mcnemar(2, 9)


@pytest.mark.parametrize(("successes", "count"), [(0, 20), (7, 20), (20, 20), (873, 1000)])
def test_clopper_pearson_is_made_of_beta_quantiles(successes: int, count: int) -> None:
    low, high = clopper_pearson(successes, count)
    assert low == pytest.approx(beta.ppf(0.025, successes, count - successes + 1) if successes else 0, abs=1e-12)
    assert high == pytest.approx(
        beta.ppf(0.975, successes + 1, count - successes) if successes < count else 1, abs=1e-12
    )


@pytest.mark.parametrize(("interval", "least", "most"), [(wilson, 0.94, 0.96), (clopper_pearson, 0.95, 0.97)])
def test_intervals_of_a_proportion_cover_as_promised(interval: Any, least: float, most: float) -> None:
    """The coverage is a sum over all outcomes; it is averaged over proportions, since it jumps from one to the next."""
    count = 300
    outcomes = numpy.arange(count + 1)
    ends = numpy.array([interval(int(successes), count) for successes in outcomes])
    truths = numpy.linspace(0.1, 0.9, 81)
    covered = [(binom.pmf(outcomes, count, p) * ((ends[:, 0] <= p) & (p <= ends[:, 1]))).sum() for p in truths]
    assert least <= float(numpy.mean(covered)) <= most


def test_the_interval_of_a_paired_difference_covers_as_promised() -> None:
    generator, shares = numpy.random.default_rng(1), [0.4, 0.15, 0.1, 0.35]
    drawn = generator.multinomial(400, shares, size=3000)
    ends = numpy.array([paired_difference(*map(int, counts), resamples=2000) for counts in drawn])
    covered = float(((ends[:, 0] <= 0.05) & (ends[:, 1] >= 0.05)).mean())
    assert abs(covered - 0.95) <= 0.01


def test_the_interval_of_a_paired_difference_is_about_the_normal_one() -> None:
    low, high = paired_difference(500, 200, 100, 200)
    spread = 1.96 * math.sqrt((0.3 - 0.1**2) / 1000)
    assert (low, high) == pytest.approx((0.1 - spread, 0.1 + spread), abs=2e-3)
    assert paired_difference(10, 0, 0, 5) == (0.0, 0.0)
    assert (low, high) == paired_difference(500, 200, 100, 200)


def test_the_bootstrap_of_a_mean_is_about_the_normal_interval() -> None:
    values = numpy.random.default_rng(2).normal(3.0, 2.0, 400)
    low, high = bootstrap(values, numpy.mean)
    spread = 1.96 * values.std() / math.sqrt(400)
    assert (low, high) == pytest.approx((values.mean() - spread, values.mean() + spread), abs=0.03)


def test_holm_is_worked_out_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02], abs=1e-12)
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
