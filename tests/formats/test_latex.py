"""LaTeX says the same numbers, and names cannot become commands."""

from __future__ import annotations

import re

import pytest

from robustkpca.boards import Board, Cell, Column, Row, Table
from robustkpca.formats import render
from robustkpca.formats.latex import escaped

BOARD = Board("b", "Robust accuracy", (Column("clean", ("clean",)), Column("PGD_20 %", ("pgd@linf:8/255",))))
HIGH, LOW = Cell(0.95, 0.90, 0.98, 200, 200, "pixel"), Cell(0.4321, 0.40, 0.47, 200, 200, "pixel")
FLAGGED = Cell(0.99, 0.97, 1.0, 200, 200, "pixel", flags=("random output",))
GAP = Cell(None, None, None, 100, 200, "pixel")


def rows(text: str) -> list[list[str]]:
    """Return the cells of the lines between the rules, in which an escaped ampersand does not separate."""
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    lines = [line.removesuffix(r"\\").strip() for line in body.strip().splitlines()]
    return [[part.strip() for part in re.split(r"(?<!\\)&", line)] for line in lines]


def numbers(cell: str) -> list[float]:
    return [float(number) / 100 for number in re.findall(r"\d+\.\d", cell)]


def test_it_is_read_back_as_the_same_numbers() -> None:
    table = Table(
        BOARD, "d-1", "digits", (Row("a", "soft&max", 0, (HIGH, LOW), 1, True), Row("b", "b", 0, (GAP, HIGH), 1))
    )
    first, second = rows(render([table], "latex"))
    assert first[:2] == ["1 =", r"soft\&max"]
    assert second[0] == "1"
    assert numbers(first[2]) == pytest.approx([0.95, 0.90, 0.98], abs=5e-4)
    assert numbers(first[3]) == pytest.approx([0.4321, 0.40, 0.47], abs=5e-4)
    assert "100 of 200 missing" in second[2]
    assert render([table], "latex").count("{tabular}") == 2


def test_the_best_number_of_a_column_is_bold_unless_a_remark_stands_at_it() -> None:
    table = Table(BOARD, "d-1", "digits", (Row("a", "a", 0, (HIGH, LOW), 1), Row("b", "b", 0, (FLAGGED, HIGH), 2)))
    first, second = rows(render([table], "latex"))
    assert [r"\textbf" in cell for cell in (*first[2:], *second[2:])] == [True, False, False, True]
    assert second[2].endswith("!}")


def test_both_of_two_best_are_bold() -> None:
    table = Table(BOARD, "d-1", "digits", (Row("a", "a", 0, (HIGH, LOW), 1), Row("b", "b", 0, (HIGH, LOW), 1)))
    assert render([table], "latex").count(r"\textbf") == 4


@pytest.mark.parametrize("name", [r"\input{/etc/passwd}", "a_b^c~d", "100 % & #1 $x$", "[x]\nnext|<>"])
def test_names_cannot_become_commands(name: str) -> None:
    text = escaped(name)
    without = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}", "", text)
    assert not re.search(r"\\(?![{}&%$#_])", without)
    assert "\n" not in text
    assert not re.search(r"(?<!\\)[&%$#_^~]", without)
