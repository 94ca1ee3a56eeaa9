"""Reported numbers: compared only where everything agrees."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from robustkpca.boards import Board, Cell, Column, Row, Table
from robustkpca.commands import cli
from robustkpca.errors import UserError
from robustkpca.reported import Reported, beside, records, render_reported, summary

CLEAN = Column("clean", ("clean",))
CELL = Cell(0.7044, 0.70, 0.71, 50_000, 50_000, "pixel")


def table(row: Row, column: Column = CLEAN, name: str = "imagenet") -> Table:
    return Table(Board("mine", "Mine", (column,)), f"{name}-0", name, (row,))


def row(name: str = "symvit_tiny", cell: Cell = CELL, checkpoint: str = "ab") -> Row:
    return Row(f"{name}-0", name, 0, (cell,), checkpoint=checkpoint)


def only(pairs: list[Reported], model: str = "SymViT-tiny (baseline)") -> Reported:
    (pair,) = {
        pair.reported: pair for pair in pairs if pair.reported_model == model and pair.reported == 70.44
    }.values()
    return pair


def test_a_number_in_our_interval_agrees_and_one_outside_does_not() -> None:
    pair = only(beside([table(row())]))
    assert pair.inside is True
    assert pair.reason == ""
    assert pair.difference == pytest.approx(0.0, abs=1e-9)
    pair = only(beside([table(row(cell=replace(CELL, value=0.72, low=0.715, high=0.725)))]))
    assert pair.inside is False
    assert pair.difference == pytest.approx(1.56)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        (table(row("symvit_digits")), "model size"),
        (table(row("symvit_tiny(depth=2)")), "model options"),
        (table(row(checkpoint="")), "weights"),
        (table(row(), name="digits"), "data set"),
        (table(row(cell=replace(CELL, count=100, expected=100))), "sample count"),
        (table(row(cell=replace(CELL, value=None, low=None, high=None))), "no number"),
        (table(row(cell=replace(CELL, flags=("random output",)))), "flagged"),
    ],
)
def test_whatever_differs_is_named(changed: Table, word: str) -> None:
    pair = only(beside([changed]))
    assert pair.inside is None
    assert pair.difference is None
    assert word in pair.reason


@pytest.mark.parametrize(
    ("threat", "reason"),
    [
        ("published/pgd@linf:6/255", ""),
        ("pgd@linf:6/255", "protocol"),
        ("published/pgd@linf:1/255", "radius"),
        ("published/pgd(steps=3)@linf:6/255", "options of the attack"),
    ],
)
def test_attacks_agree_in_protocol_radius_and_options(threat: str, reason: str) -> None:
    pairs = beside([table(row(), Column("attacked", (threat,)))])
    assert pairs
    if not reason:
        assert any(pair.inside is not None for pair in pairs)
        assert all(pair.inside is not None or "reported none" in pair.reason for pair in pairs)
    assert all(reason in pair.reason for pair in pairs)


def test_logs_for_orientation_are_never_listed() -> None:
    assert any(record["orientation"] for record in records())
    assert not [pair for pair in beside([table(row())]) if "Elliptical" in pair.source]


def test_the_formats_hold_the_same_numbers() -> None:
    pairs = beside([table(row())])
    as_json = json.loads(render_reported(pairs, "json"))
    as_csv = list(csv.DictReader(io.StringIO(render_reported(pairs, "csv"))))
    assert [one["reported"] for one in as_json] == [float(one["reported"]) for one in as_csv]
    assert [one["ours"] for one in as_json] == [float(one["ours"]) for one in as_csv]
    assert summary(pairs) in render_reported(pairs, "markdown")
    with pytest.raises(UserError, match="format"):
        render_reported(pairs, "latex")


@pytest.mark.parametrize(
    ("name", "iterations"),
    [("rpc_symvit_tiny", 4), ("rpc_symvit_tiny(iterations=6)", 6), ("rpc_symvit_tiny(layers=0)", 4)],
)
def test_options_with_their_default_value_need_not_be_written(name: str, iterations: int) -> None:
    agreeing = {pair.reported_model for pair in beside([table(row(name))]) if pair.inside is not None}
    assert agreeing == {f"RPC-SymViT-tiny ({iterations}iter/layer1)"}


@pytest.mark.parametrize(("value", "code"), [(0.7044, 0), (0.72, 1)])
def test_check_ends_with_1_where_a_comparable_number_disagrees(
    value: float, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = replace(CELL, value=value, low=value - 0.001, high=value + 0.001)
    monkeypatch.setattr("robustkpca.store.read", lambda *folders: None)
    monkeypatch.setattr("robustkpca.boards.leaderboard", lambda frame, board, radii: [table(row(cell=cell))])
    result = CliRunner().invoke(cli, ["leaderboard", "--check", "reported"])
    assert result.exit_code == code, result.output
    assert "1 reported numbers compared" in result.output
