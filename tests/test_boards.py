"""Records become a table, or a reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustkpca.boards import Board, Cell, Column, Row, board_of, find_board, leaderboard
from robustkpca.errors import BadValue, UnknownName
from robustkpca.statistics import mcnemar, wilson

WORDS = {"S": "survived", "B": "broken", "M": "mistaken", "I": "invalid", "F": "failed"}
CLEAN, FGSM, PGD = "clean", "fgsm@linf:8/255", "pgd@linf:8/255"


def records(
    outcomes: str,
    *,
    model: str = "toy-0123456789ab",
    threat: str = CLEAN,
    data: str = "digits-1",
    seed: int = 0,
    planned: int | None = None,
    first: int = 0,
    **changes: Any,
) -> pandas.DataFrame:
    """Return the records of one cell, one letter per sample."""
    count = len(outcomes)
    columns: dict[str, Any] = {
        "model": model,
        "threat": threat,
        "data": data,
        "seed": seed,
        "sample": [f"{index:06}" for index in range(first, first + count)],
        "verdict": [WORDS[letter] for letter in outcomes],
        "task": "classification",
        "model_name": model.rpartition("-")[0],
        "data_name": data.rpartition("-")[0],
        "threat_label": threat,
        "threat_version": "1",
        "classes": "10",
        "planned": str(count if planned is None else planned),
        "flags": "",
    }
    return pandas.DataFrame(columns | changes, index=range(count))


def rows_of(*parts: pandas.DataFrame, board: Board | None = None) -> tuple[Row, ...]:
    """Return the rows of the only table."""
    (table,) = leaderboard(pandas.concat(parts, ignore_index=True), board)
    return table.rows


def cell_of(*parts: pandas.DataFrame, threats: Sequence[str] = (CLEAN,)) -> Cell:
    """Return the only cell of a board with one column."""
    (row,) = rows_of(*parts, board=Board("one", "One", (Column("it", tuple(threats)),)))
    return row.cells[0]


def ranks(*parts: pandas.DataFrame) -> list[tuple[str, int | None, bool]]:
    """Return names, ranks and ties in the order of the table."""
    return [(row.name, row.rank, row.tied) for row in rows_of(*parts)]


# One number


def test_robust_accuracy_is_the_survivors_among_all() -> None:
    """R43: 16 images, 14 right when clean, 7 of those broken: 7/16, clean mistakes stay in the denominator."""
    assert cell_of(records("S" * 7 + "B" * 7 + "M" * 2)).value == pytest.approx(7 / 16)


def test_the_interval_is_that_of_wilson() -> None:
    cell = cell_of(records("SSSB"))
    assert (cell.low, cell.high) == wilson(3, 4)


def test_a_cell_counts_its_samples() -> None:
    cell = cell_of(records("SSSB"))
    assert (cell.count, cell.expected, cell.invalid, cell.failed) == (4, 4, 0, 0)


@pytest.mark.parametrize(("outcomes", "value"), [("SSS", 1.0), ("BBM", 0.0)])
def test_all_and_nothing_have_a_value(outcomes: str, value: float) -> None:
    assert cell_of(records(outcomes)).value == value


@pytest.mark.parametrize("outcomes", ["SSSI", "SSSF", "I", "F"])
def test_a_sample_without_a_verdict_leaves_no_mean(outcomes: str) -> None:
    cell = cell_of(records(outcomes))
    assert (cell.value, cell.low, cell.high) == (None, None, None)
    assert (cell.invalid, cell.failed) == (outcomes.count("I"), outcomes.count("F"))


def test_missing_samples_leave_no_mean() -> None:
    cell = cell_of(records("SSS", planned=5))
    assert (cell.value, cell.count, cell.expected) == (None, 3, 5)


def test_a_threat_that_was_not_run_leaves_no_mean() -> None:
    cell = cell_of(records("SSS"), threats=[PGD])
    assert (cell.value, cell.count, cell.expected) == (None, 0, 3)


def test_what_was_asked_for_is_the_largest_run() -> None:
    cell = cell_of(records("SSS", planned=3), records("SS", planned=5, first=3))
    assert (cell.value, cell.count, cell.expected) == (1.0, 5, 5)


def test_other_threats_tell_how_many_samples_were_asked_for() -> None:
    cell = cell_of(records("SSS", planned=3), records("S" * 5, threat=PGD, planned=5))
    assert (cell.value, cell.count, cell.expected) == (None, 3, 5)


# The worst of several


def test_the_worst_of_two_threats_joins_by_sample() -> None:
    """Each alone leaves 3 of 4; together they leave 2."""
    cell = cell_of(records("SSSB", threat=FGSM), records("BSSS", threat=PGD), threats=[FGSM, PGD])
    assert cell.value == 0.5


def test_the_join_does_not_depend_on_the_order_of_records() -> None:
    first, second = records("SSSB", threat=FGSM), records("BSSS", threat=PGD).iloc[::-1]
    assert cell_of(second, first, threats=[FGSM, PGD]).value == 0.5


def test_a_sample_that_met_one_of_two_threats_is_missing() -> None:
    cell = cell_of(records("SSSB", threat=FGSM), records("BSS", threat=PGD, planned=4), threats=[FGSM, PGD])
    assert (cell.value, cell.count, cell.expected) == (None, 3, 4)


def test_a_failure_under_one_threat_blocks_the_worst_of_both() -> None:
    cell = cell_of(records("SSSB", threat=FGSM), records("BSSF", threat=PGD), threats=[FGSM, PGD])
    assert (cell.value, cell.failed) == (None, 1)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("SBM"), st.sampled_from("SBM")), min_size=1, max_size=12))
def test_the_worst_is_no_better_than_each(pairs: list[tuple[str, str]]) -> None:
    one, other = ("".join(letters) for letters in zip(*pairs, strict=True))
    first, second = records(one, threat=FGSM), records(other, threat=PGD)
    worst = cell_of(first, second, threats=[FGSM, PGD]).value
    alone = cell_of(first, threats=[FGSM]).value, cell_of(second, threats=[PGD]).value
    assert worst == sum(pair == ("S", "S") for pair in pairs) / len(pairs)
    assert worst is not None
    assert worst <= min(value for value in alone if value is not None)


# What never shares a column, row or table


def test_the_protocols_are_never_mixed_in_a_column() -> None:
    with pytest.raises(BadValue, match="column 'both' mixes the pixel and the published protocol"):
        Column("both", (PGD, f"published/{PGD}"))


def test_a_made_up_board_keeps_the_protocols_apart() -> None:
    board = board_of([CLEAN, FGSM, PGD, f"published/{FGSM}", f"published/{PGD}"])
    assert [(column.title, column.protocol) for column in board.columns[-2:]] == [
        ("worst of 2", "pixel"),
        ("published/worst of 2", "published"),
    ]


def test_a_cell_says_its_protocol() -> None:
    assert cell_of(records("S", threat=f"published/{PGD}"), threats=[f"published/{PGD}"]).protocol == "published"


def test_data_sets_never_share_a_table() -> None:
    """R79: same name, other contents."""
    frame = pandas.concat([records("SS", data="digits-1"), records("SB", data="digits-2")], ignore_index=True)
    tables = leaderboard(frame)
    assert [(table.data, table.rows[0].cells[0].value) for table in tables] == [("digits-1", 1.0), ("digits-2", 0.5)]


def test_seeds_never_share_a_row() -> None:
    found = rows_of(records("SS", seed=0), records("SB", seed=1))
    assert sorted((row.seed, row.cells[0].value) for row in found) == [(0, 1.0), (1, 0.5)]


def test_two_implementations_of_a_threat_are_refused() -> None:
    """R109."""
    with pytest.raises(BadValue, match=f"records of 2 implementations of {PGD}; keep one"):
        rows_of(records("SS", threat=PGD), records("SS", threat=PGD, first=2, threat_version="2"))


def test_two_texts_behind_one_label_are_refused() -> None:
    """A default that changed between two versions gives two full texts with the same short one."""
    with pytest.raises(BadValue, match="2 implementations"):
        rows_of(records("SS", threat=PGD), records("SS", threat="pgd(steps=40)@linf:8/255", threat_label=PGD, first=2))


# Ranks


def noisy(model: str, survivors: int, count: int = 100) -> pandas.DataFrame:
    """Return a model that survives its first samples."""
    return records("S" * survivors + "B" * (count - survivors), model=model)


def test_exact_ties_share_a_rank_and_the_next_one_is_skipped() -> None:
    """R107."""
    found = ranks(noisy("b-1", 71), noisy("c-1", 50), noisy("a-1", 71))
    assert found == [("a", 1, True), ("b", 1, True), ("c", 3, False)]


def test_models_within_noise_share_a_rank() -> None:
    """R105: discordant pairs 5 and 3."""
    first, second = "S" * 5 + "B" * 3 + "S" * 92, "B" * 5 + "S" * 3 + "S" * 92
    assert ranks(records(first, model="a-1"), records(second, model="b-1")) == [("a", 1, True), ("b", 1, True)]


@pytest.mark.parametrize("pairs", range(1, 10))
def test_a_rank_is_shared_exactly_where_mcnemar_does_not_reject(pairs: int) -> None:
    found = ranks(noisy("a-1", 90), noisy("b-1", 90 - pairs))
    assert found[1][2] is (mcnemar(pairs, 0) >= 0.05)
    assert found[1][1] == (1 if mcnemar(pairs, 0) >= 0.05 else 2)


def test_the_test_is_paired() -> None:
    """Both pairs have 50 and 40 of 100; where the 40 lie inside the 50, the difference is sure."""
    inside = noisy("b-1", 40)
    outside = records("B" * 60 + "S" * 40, model="b-1")
    assert ranks(noisy("a-1", 50), inside)[1] == ("b", 2, False)
    assert ranks(noisy("a-1", 50), outside)[1] == ("b", 1, True)


def test_a_tie_is_with_the_first_of_the_group_and_not_a_chain() -> None:
    """Each differs from its neighbour by 4 samples (p = 0.125), the outer two by 8 (p = 0.008)."""
    found = ranks(noisy("a-1", 90), noisy("b-1", 86), noisy("c-1", 82))
    assert found == [("a", 1, True), ("b", 1, True), ("c", 3, False)]


def test_a_row_without_value_has_no_rank_and_stands_last() -> None:
    found = ranks(records("SSI", model="a-1"), records("BBB", model="b-1"))
    assert found == [("b", 1, False), ("a", None, False)]


def test_the_last_column_ranks_where_the_board_does_not_say() -> None:
    parts = [records("S" * 20, model="a-1"), records("B" * 20, model="a-1", threat=PGD)]
    parts += [records("B" * 20, model="b-1"), records("S" * 20, model="b-1", threat=PGD)]
    columns = (Column("clean", (CLEAN,)), Column("pgd", (PGD,)))
    assert [row.name for row in rows_of(*parts, board=Board("x", "X", columns))] == ["b", "a"]
    assert [row.name for row in rows_of(*parts, board=Board("x", "X", columns, rank_by="clean"))] == ["a", "b"]


def test_a_board_cannot_rank_by_a_column_it_lacks() -> None:
    with pytest.raises(BadValue, match="ranks by 'pgd'; expected one of clean"):
        Board("x", "X", (Column("clean", (CLEAN,)),), rank_by="pgd")


def test_the_table_does_not_depend_on_the_order_of_records() -> None:
    frame = pandas.concat([noisy("b-1", 60), noisy("a-1", 60), noisy("c-1", 20)], ignore_index=True)
    assert leaderboard(frame) == leaderboard(frame.sample(frac=1, random_state=0))


# Names, flags, boards


def test_two_models_of_one_name_are_told_apart_by_their_id() -> None:
    found = rows_of(records("SS", model="toy-aaaaaabbbbbb"), records("SS", model="toy-bbbbbbcccccc"))
    assert [row.name for row in found] == ["toy #aaaaaa", "toy #bbbbbb"]


def test_one_model_under_two_seeds_keeps_its_bare_name() -> None:
    assert {row.name for row in rows_of(records("SS", seed=0), records("SS", seed=1))} == {"toy"}


def test_flags_of_the_run_reach_the_table() -> None:
    (table,) = leaderboard(records("SS", flags="random output; masked?"))
    assert table.rows[0].cells[0].flags == ("masked?", "random output")
    assert table.notes == ("masked?", "random output")


@pytest.mark.parametrize(("zeros", "flagged"), [([0, 0, 3, 3], False), ([0, 2, 0, 0], True)])
def test_zero_gradients_are_flagged_on_survivors_only(zeros: list[int], flagged: bool) -> None:
    """R9: an attack without gradients proves nothing."""
    cell = cell_of(records("SSBB", threat=PGD, zero_gradients=zeros), threats=(PGD,))
    assert any("zero gradients: on 50 %" in flag for flag in cell.flags) is flagged


def test_without_a_board_every_threat_is_a_column() -> None:
    (table,) = leaderboard(pandas.concat([records("SS"), records("SB", threat=PGD)], ignore_index=True))
    assert [column.title for column in table.board.columns] == [CLEAN, PGD]


def test_a_made_up_board_adds_the_worst_of_its_attacks() -> None:
    assert [column.title for column in board_of([CLEAN, FGSM, PGD]).columns] == [CLEAN, FGSM, PGD, "worst of 2"]


def test_a_threat_named_twice_is_one_column() -> None:
    assert [column.title for column in board_of([PGD, PGD]).columns] == [PGD]


def test_a_board_of_nothing_is_refused() -> None:
    with pytest.raises(BadValue, match="at least one threat"):
        board_of([])


def test_a_board_runs_every_threat_once() -> None:
    board = Board("x", "X", (Column("a", (CLEAN,)), Column("b", (PGD, FGSM)), Column("c", (FGSM,))))
    assert board.threats == (CLEAN, PGD, FGSM)


def test_a_registered_board_is_found_by_name() -> None:
    assert find_board("linf").name == "linf"
    assert leaderboard(records("SS"), "linf")[0].board.name == "linf"


def test_an_unknown_board_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no board named 'lnf'. Did you mean 'linf'"):
        find_board("lnf")


def test_frames_with_categories_are_read_like_frames_with_text() -> None:
    frame = records("SSBM")
    categories = frame.astype({name: "category" for name in frame.columns if name not in ("seed", "sample")})
    assert leaderboard(categories) == leaderboard(frame)


def test_costs_are_per_sample_over_all_threats_of_a_column() -> None:
    parts = [
        records("SB", threat=FGSM, forwards=[3, 1], backwards=[1, 0], seconds=0.25),
        records("SB", threat=PGD, forwards=[20, 2], backwards=[19, 1], seconds=0.5),
    ]
    cell = cell_of(*parts, threats=(FGSM, PGD))
    assert (cell.forwards, cell.backwards, cell.seconds) == (13.0, 10.5, 0.75)
    assert cell_of(records("SB")).seconds is None
