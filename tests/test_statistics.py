"""Intervals and paired tests against the formulas of their papers."""

from __future__ import annotations

from math import comb, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustkpca.statistics import mcnemar, wilson

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
