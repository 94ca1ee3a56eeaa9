"""Boards in TOML files: what they hold, and what is refused in one line."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from robustkpca.board_files import open_board, read_board
from robustkpca.errors import UserError
from robustkpca.evaluation import run_matrix
from robustkpca.matrix import Matrix

GOOD = """
title = "Mine"
rank_by = "worst"

[[columns]]
title = "clean"
threats = ["clean"]

[[columns]]
title = "worst"
threats = ["fgsm@linf:0.05", "noise@linf:0.05"]

[[columns]]
title = "close"
threats = ["fab@l2:min"]
within = "1/4"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_becomes_a_board(tmp_path: Path) -> None:
    board = read_board(written(tmp_path, GOOD))
    assert (board.name, board.title, board.rank_by) == ("mine", "Mine", "worst")
    assert [column.title for column in board.columns] == ["clean", "worst", "close"]
    assert board.columns[1].threats == ("fgsm@linf:0.05", "noise@linf:0.05")
    assert board.columns[2].within == Fraction(1, 4)
    assert open_board("quick").name == "quick"


def test_it_can_be_run_and_shown(tmp_path: Path) -> None:
    text = GOOD.partition('[[columns]]\ntitle = "close"')[0]
    matrix = Matrix.of("test", models=["symvit_digits"], threats=[str(written(tmp_path, text))], limit=8)
    done = run_matrix(matrix, tmp_path / "results")
    assert done.board.name == "mine"
    assert set(done.frame()["threat_label"]) == {"clean", "fgsm@linf:0.05", "noise@linf:0.05"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "expected a TOML file"),
        ("title = 3\ncolumns = []", "title of the board is 3; expected a text"),
        ('title = "a"', "columns of the board is None; expected a list"),
        ('title = "a"\ncolumns = []', "it has no columns"),
        ('title = "a"\ncolumns = [3]', "column 1 is 3"),
        (GOOD.replace("threats = ", "threat = ", 1), "threat"),
        (GOOD.replace('["clean"]', "[]"), "the threats of column 1"),
        (GOOD.replace('["clean"]', "[1]"), "the threats of column 1"),
        (GOOD.replace('rank_by = "worst"', 'rank_by = "best"'), "ranks by 'best'"),
        (GOOD.replace('"noise@linf:0.05"', '"published/noise@linf:0.05"'), "mixes the pixel and the published"),
        (GOOD.replace('within = "1/4"', 'within = "near"'), "radius 'near'"),
        (GOOD.replace('within = "1/4"', 'reduce = "best"'), "reduce 'best'"),
        ("[" * 5000, "expected a TOML file"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_board(written(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="board"):
        read_board(tmp_path / name)
