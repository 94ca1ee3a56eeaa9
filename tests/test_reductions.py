"""Columns that are means: their numbers, intervals, order and refusals."""

from __future__ import annotations

from typing import Any

import pandas
import pytest

from robustkpca.boards import Board, Column, find_board, leaderboard
from robustkpca.errors import BadValue
from robustkpca.formats import render
from robustkpca.metrics.corruption_error import ALEXNET, mean_corruption_error
from robustkpca.reductions import p_value, with_interval
from robustkpca.statistics import wilson

ALL = tuple(f"{name}:{severity}" for name in ALEXNET for severity in range(1, 6))


def records(model: str, right: dict[str, list[int]], count: int) -> pandas.DataFrame:
    """For every threat which of the samples are classified correctly."""
    rows: list[dict[str, Any]] = []
    for threat, hits in right.items():
        for sample in range(count):
            hit = sample in hits
            rows.append(
                {
                    "model": model,
                    "model_name": model,
                    "data": "data-1",
                    "data_name": "data",
                    "seed": 0,
                    "sample": f"s{sample}",
                    "threat": threat,
                    "threat_label": threat,
                    "threat_version": 1,
                    "planned": str(count),
                    "flags": "",
                    "verdict": "survived" if hit else "broken",
                    "top5": hit or sample % 2 == 0,
                }
            )
    return pandas.DataFrame(rows)


def test_a_mean_counts_every_threat_and_the_worst_only_what_survives_all() -> None:
    frame = records("m", {"fog:1": [0, 1, 2], "fog:2": [0, 1], "fog:3": [0]}, 4)
    threats = ("fog:1", "fog:2", "fog:3")
    columns = (Column("mean", threats, "mean"), Column("top", threats, "top5"), Column("worst", threats))
    (table,) = leaderboard(frame, Board("b", "B", columns))
    mean, top, worst = table.rows[0].cells
    assert mean.value == pytest.approx(6 / 12)
    assert top.value == pytest.approx((3 + 2 + 3 + 0) / 12)
    assert worst.value == 1 / 4
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low < 0.5 < mean.high
    assert (worst.low, worst.high) == wilson(1, 4)


def test_an_mce_column_is_the_mean_corruption_error_and_lower_is_better() -> None:
    good = records(
        "good", {threat: [0, 1, 2, 3, 4, 5, 6] if "noise" in threat else [0, 1, 2, 3, 4, 5] for threat in ALL}, 8
    )
    bad = records("bad", {threat: [1] for threat in ALL}, 8)
    (table,) = leaderboard(pandas.concat([good, bad]), Board("b", "B", (Column("mCE", ALL, "mce"),)))
    accuracies = {name: [7 / 8 if "noise" in name else 6 / 8] * 5 for name in ALEXNET}
    assert [row.name for row in table.rows] == ["good", "bad"]
    assert table.rows[0].cells[0].value == pytest.approx(mean_corruption_error(accuracies))
    assert (table.rows[0].rank, table.rows[1].rank) == (1, 2)
    assert "lower is better" in render([table], "markdown")


def test_a_mean_lacks_what_one_threat_lacks() -> None:
    frame = records("m", {"fog:1": [0], "fog:2": [0]}, 4)
    (table,) = leaderboard(frame[:-1], Board("b", "B", (Column("mean", ("fog:1", "fog:2"), "mean"),)))
    cell = table.rows[0].cells[0]
    assert (cell.value, cell.count, cell.expected) == (None, 3, 4)


def test_an_mce_needs_all_of_imagenet_c() -> None:
    with pytest.raises(BadValue, match="jpeg_compression missing"):
        Column("mCE", ALL[:-5], "mce")
    with pytest.raises(BadValue, match="five severities of each corruption, got 74"):
        Column("mCE", ALL[:-1], "mce")
    with pytest.raises(BadValue, match="reduce 'best'; expected one of worst, mean, top5, distance, mce"):
        Column("x", ("fog:1",), "best")


def test_means_are_compared_by_a_paired_t_test() -> None:
    assert p_value([0.1, 0.5, 0.9], [0.1, 0.5, 0.9], "mean") == 1
    assert p_value([0.5, 0.7, 0.9], [0.1, 0.3, 0.5], "mean") == 0  # the same step everywhere
    assert 0.05 < p_value([0.2, 0.4, 0.6], [0.3, 0.35, 0.5], "mean") < 1
    assert with_interval([0.5], "mean")[1:] == (0.0, float("inf"))


def test_the_board_of_imagenet_c_has_75_cells_and_the_clean_one() -> None:
    board = find_board("imagenet-c")
    assert len(board.threats) == 76
    assert set(board.threats) == {"clean", *ALL}
    assert len(find_board("cifar10-c").threats) == 76
