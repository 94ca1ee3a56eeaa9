"""A table as text says the same numbers in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from robustkpca.boards import Board, Cell, Column, Row, Table
from robustkpca.errors import UnknownName
from robustkpca.formats import FORMATS, render
from robustkpca.formats.texts import cell_text

GOOD = Cell(0.4375, 0.2310, 0.6682, 16, 16, "pixel")
FULL = Cell(1.0, 0.8064, 1.0, 16, 16, "pixel", flags=("random output",))
GAP = Cell(None, None, None, 10, 16, "pixel", 2, 3)
BOARD = Board("quick", "Robust accuracy", (Column("clean", ("clean",)), Column("PGD", ("pgd@linf:8/255",))))


def table(*rows: Row, data_name: str = "digits", board: Board = BOARD) -> Table:
    """Return a table of some rows."""
    return Table(board, "digits-0123", data_name, rows or (Row("m-1", "toy", 0, (FULL, GOOD), 1, True),), ("a note",))


def grid(text: str) -> list[list[str]]:
    """Read the table out of markdown, as a viewer does: cells are split at bars that are not escaped."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [[part.replace("\\|", "|").replace("&lt;", "<").replace("\\\\", "\\") for part in line] for line in cells]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (GOOD, "43.8 [23.1, 66.8]"),
        (FULL, "100.0 [80.6, 100.0] !"),
        (GAP, "6 of 16 missing, 2 invalid, 3 failed"),
        (Cell(None, None, None, 16, 16, "pixel", 1), "1 invalid"),
        (Cell(None, None, None, 0, 16, "pixel"), "16 of 16 missing"),
        (Cell(None, None, None, 0, 0, "pixel"), "not run"),
        (Cell(0.0, 0.0, 0.2, 16, 16, "pixel"), "0.0 [0.0, 20.0]"),
    ],
)
def test_a_cell_is_a_percentage_with_its_interval_or_a_reason(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text


def test_markdown_is_read_back_as_the_same_numbers() -> None:
    head, rule, line = grid(render([table()], "markdown"))
    assert head == ["rank", "model", "clean", "PGD"]
    assert all(re.fullmatch(r"-+:?", part) for part in rule)
    assert line[:2] == ["1 =", "toy"]
    shown = [float(number) / 100 for number in re.findall(r"[\d.]+", line[3])]
    assert shown == pytest.approx([0.4375, 0.2310, 0.6682], abs=6e-4)


def test_markdown_columns_are_aligned() -> None:
    rows = (Row("m-1", "toy", 0, (FULL, GOOD), 1), Row("m-2", "a much longer name", 0, (GAP, GAP)))
    lines = [line for line in render([table(*rows)], "markdown").splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1


def test_a_row_without_rank_has_an_empty_one() -> None:
    assert grid(render([table(Row("m-2", "toy", 0, (GAP, GAP)))], "markdown"))[2][0] == ""


@pytest.mark.parametrize("name", ["a|b", "a\\|b", "<script>alert(1)</script>", "back\\slash", "x" * 200])
def test_no_name_breaks_a_markdown_row(name: str) -> None:
    found = grid(render([table(Row("m-1", name, 0, (FULL, GOOD), 1))], "markdown"))
    assert [len(line) for line in found] == [4, 4, 4]


@pytest.mark.parametrize("name", ["a|b", "<b>bold</b>", "rpc_symvit_tiny(layers=[0,1])"])
def test_a_name_is_read_back_from_markdown(name: str) -> None:
    assert grid(render([table(Row("m-1", name, 0, (FULL, GOOD), 1))], "markdown"))[2][1] == name


def test_a_line_break_in_a_name_does_not_end_a_markdown_row() -> None:
    assert grid(render([table(Row("m-1", "two\nlines", 0, (FULL, GOOD), 1))], "markdown"))[2][1] == "two lines"


@pytest.mark.parametrize("where", ["name", "data", "title", "note"])
def test_no_html_reaches_markdown(where: str) -> None:
    evil = "<img src=x>"
    board = Board("x", evil if where == "title" else "X", (Column(evil if where == "title" else "clean", ("clean",)),))
    row = Row("m-1", evil if where == "name" else "toy", 0, (FULL,), 1)
    notes = (evil,) if where == "note" else ()
    one = Table(board, "digits-1", evil if where == "data" else "digits", (row,), notes)
    assert "<img" not in render([one], "markdown")


def test_markdown_says_how_the_numbers_were_obtained() -> None:
    text = render([table()], "markdown")
    assert "95 % Wilson interval" in text
    assert "digits (digits-0123), n = 16; protocol pixel; seed 0." in text
    assert "! a note" in text
    assert "McNemar" in text


def test_seeds_are_a_column_where_there_are_several() -> None:
    rows = (Row("m-1", "toy", 0, (FULL, GOOD), 1), Row("m-1", "toy", 1, (FULL, GOOD), 1))
    found = grid(render([table(*rows)], "markdown"))
    assert found[0][2] == "seed"
    assert [line[2] for line in found[2:]] == ["0", "1"]


def test_markdown_holds_every_table() -> None:
    text = render([table(), table(data_name="photos")], "markdown")
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == ["Robust accuracy: digits", "Robust accuracy: photos"]


def test_csv_is_read_back_exactly() -> None:
    found = list(csv.DictReader(io.StringIO(render([table()], "csv"))))
    assert [line["column"] for line in found] == ["clean", "PGD"]
    assert (float(found[1]["value"]), float(found[1]["low"])) == (GOOD.value, GOOD.low)
    assert found[0]["flags"] == "random output"
    assert (found[0]["model"], found[0]["model_name"], found[0]["rank"]) == ("m-1", "toy", "1")


def test_csv_leaves_what_is_unknown_empty() -> None:
    text = render([table(Row("m-2", "toy", 0, (GAP, GAP)))], "csv")
    found = next(csv.DictReader(io.StringIO(text)))
    assert (found["value"], found["rank"], found["count"], found["expected"]) == ("", "", "10", "16")
    assert (found["invalid"], found["failed"]) == ("2", "3")


@pytest.mark.parametrize("name", ['comma, "quote"', "two\nlines", "a|b"])
def test_csv_keeps_every_name(name: str) -> None:
    text = render([table(Row("m-1", name, 0, (FULL, GOOD), 1))], "csv")
    assert next(csv.DictReader(io.StringIO(text)))["model_name"] == name


def test_json_is_read_back_exactly() -> None:
    (found,) = json.loads(render([table(Row("m-1", "toy", 0, (FULL, GAP), 1))], "json"))
    first, second = found["rows"][0]["cells"]
    assert (first["value"], first["low"], first["flags"]) == (1.0, 0.8064, ["random output"])
    assert (second["value"], second["count"], second["expected"]) == (None, 10, 16)
    assert found["board"]["columns"][1]["threats"] == ["pgd@linf:8/255"]


@pytest.mark.parametrize("form", list(FORMATS))
def test_every_format_ends_in_one_newline(form: str) -> None:
    text = render([table()], form)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_an_unknown_format_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no format named 'markdwn'. Did you mean 'markdown'"):
        render([table()], "markdwn")


def test_costs_stand_behind_their_column_where_asked_for() -> None:
    one = table(Row("m-1", "toy", 0, (replace(FULL, forwards=21.25, backwards=20.0, seconds=0.0123), GOOD), 1))
    text = render([one], "markdown", costs=True)
    found = grid(text)
    assert len(found[0]) == 6
    assert found[0][3].endswith(": passes")
    assert (found[2][3], found[2][5]) == ("21.2 + 20.0, 0.012 s", "")
    assert "forward + backward passes and seconds per sample" in text
    assert "passes" not in render([one], "markdown")
    assert '"forwards": 21.25' in render([one], "json")
    assert "seconds" not in render([one], "json") + render([one], "csv")
    assert '"seconds": 0.0123' in render([one], "json", costs=True)
    assert "21.25,20.0,0.0123" in render([one], "csv", costs=True)
