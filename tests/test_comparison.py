"""Two models on common samples: counts worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas
import pytest
from scipy.stats import binomtest

from robustkpca.comparison import compare
from robustkpca.errors import UserError
from robustkpca.statistics import holm

S, B, X = "survived", "broken", "failed"


def frame(rows: dict[tuple[str, str], list[str]], **other: Any) -> pandas.DataFrame:
    """Return records of some verdicts by (model, threat)."""
    records = []
    for (model, threat), verdicts in rows.items():
        for index, verdict in enumerate(verdicts):
            records.append(
                {
                    "model": f"{model}-0123",
                    "model_name": model,
                    "threat": threat,
                    "threat_version": "1",
                    "threat_label": threat,
                    "data": "d",
                    "seed": 0,
                    "sample": str(index),
                    "verdict": verdict,
                    **other,
                }
            )
    return pandas.DataFrame(records)


ROWS = {
    ("a", "clean"): [S] * 12,
    ("b", "clean"): [S] * 11 + [B],
    ("a", "pgd"): [S] * 10 + [B, X],
    ("b", "pgd"): [B] * 9 + [S, S, S],
    ("a", "only a"): [S],
}


def test_counts_differences_and_tests_are_those_of_common_samples() -> None:
    clean, pgd = compare(frame(ROWS), "a", "b")
    assert (clean.threat, clean.count, clean.first_only, clean.second_only) == ("clean", 12, 1, 0)
    assert (pgd.threat, pgd.count, pgd.first_only, pgd.second_only) == ("pgd", 11, 9, 1)
    assert (pgd.first, pgd.second) == pytest.approx((10 / 11, 2 / 11))
    assert pgd.p == binomtest(9, 10).pvalue
    assert [clean.adjusted, pgd.adjusted] == holm([clean.p, pgd.p])
    assert pgd.low < pgd.first - pgd.second < pgd.high
    assert clean.finding == "no difference shown"
    assert pgd.finding == "first is better"
    (_, turned) = compare(frame(ROWS), "b", "a")
    assert turned.finding == "second is better"


def test_models_are_named_by_name_or_id() -> None:
    assert compare(frame(ROWS), "a-0123", "b-0") == compare(frame(ROWS), "a", "b")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [("a", "c", "'c'"), ("a", "a", "same model"), ("a", "", "no model named")],
)
def test_what_cannot_be_compared_is_refused(first: str, second: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare(frame(ROWS), first, second)


def test_models_without_common_samples_are_refused() -> None:
    apart = {("a", "clean"): [S], ("b", "pgd"): [S]}
    with pytest.raises(UserError, match="no samples in common"):
        compare(frame(apart), "a", "b")


def test_a_name_with_two_sets_of_weights_is_refused() -> None:
    both = pandas.concat([frame(ROWS), frame({("a", "clean"): [S]}).assign(model="a-9999")])
    with pytest.raises(UserError, match="names 2 models: a-0123, a-9999"):
        compare(both, "a", "b")
