"""What a results folder holds, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing
from robustkpca.records import RunHeader
from robustkpca.specs import DataSpec, ModelSpec
from robustkpca.store import Cell, ResultStore
from robustkpca.summary import summary

MODEL = ModelSpec("toy", "a" * 64, Preprocessing())
DATA = DataSpec("digits", "arrays", 10, 3, "d" * 64)


def write(
    folder: Path,
    samples: str,
    verdicts: Sequence[str],
    *,
    threat: str = "clean",
    planned: int = 4,
    started: str = "1",
    seed: int = 0,
    details: Sequence[str] = (),
) -> None:
    """Write one shard that took half a second."""
    header = RunHeader(
        MODEL.to_dict(),
        threat,
        1,
        DATA.to_dict(),
        "classification",
        seed,
        "cpu",
        "float32",
        8,
        0.5,
        started,
        {},
        "/somewhere",
        planned,
        threat,
    )
    columns: dict[str, Any] = {"verdict": list(verdicts), "detail": list(details) or [""] * len(samples)}
    ResultStore(folder).write(Cell(MODEL.id, threat, 1, DATA.id, seed), header, list(samples), columns)


def test_verdicts_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "abcd", ["survived", "broken", "broken", "mistaken"])
    (row,) = summary(tmp_path)
    assert {name: row[name] for name in ("survived", "broken", "mistaken", "invalid", "failed", "missing")} == {
        "survived": 1,
        "broken": 2,
        "mistaken": 1,
        "invalid": 0,
        "failed": 0,
        "missing": 0,
    }


def test_a_row_names_its_cell(tmp_path: Path) -> None:
    write(tmp_path, "a", ["survived"], seed=3)
    (row,) = summary(tmp_path)
    assert (row["model"], row["threat"], row["data"], row["seed"]) == (MODEL.id, "clean", DATA.id, 3)


def test_what_was_asked_for_and_is_not_there_is_missing(tmp_path: Path) -> None:
    write(tmp_path, "a", ["survived"], planned=4)
    assert summary(tmp_path)[0]["missing"] == 3


def test_a_failed_sample_is_still_missing(tmp_path: Path) -> None:
    write(tmp_path, "abcd", ["survived", "failed", "survived", "survived"], details=["", "Error: no luck", "", ""])
    (row,) = summary(tmp_path)
    assert (row["missing"], row["failed"], row["why"]) == (1, 1, "Error: no luck")


def test_a_failure_that_was_mended_is_not_missing(tmp_path: Path) -> None:
    write(tmp_path, "ab", ["survived", "failed"], planned=2, started="1")
    write(tmp_path, "b", ["broken"], planned=2, started="2")
    (row,) = summary(tmp_path)
    assert (row["missing"], row["failed"], row["broken"]) == (0, 0, 1)


def test_a_threat_that_stopped_early_misses_what_the_others_have(tmp_path: Path) -> None:
    write(tmp_path, "abcd", ["survived"] * 4, planned=4)
    write(tmp_path, "ab", ["broken"] * 2, planned=2, threat="fgsm@linf:8/255")
    assert [(row["threat"], row["missing"]) for row in summary(tmp_path)] == [("clean", 0), ("fgsm@linf:8/255", 2)]


def test_seconds_of_all_shards_are_added(tmp_path: Path) -> None:
    for started in "12":
        write(tmp_path, started, ["survived"], started=started)
    assert summary(tmp_path)[0]["seconds"] == 1.0


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="no results in"):
        summary(tmp_path)
