"""Results on disk: what is there can be believed, what is missing is found, what is torn is not fatal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet
import pytest

from robustkpca.errors import BadValue, Unusable
from robustkpca.preprocessing import Preprocessing
from robustkpca.records import RunHeader
from robustkpca.specs import DataSpec, ModelSpec
from robustkpca.store import Cell, ResultStore, read

MODEL = ModelSpec("toy(width=3)", "a" * 64, Preprocessing(), label="toy")
DATA = DataSpec("digits", "arrays", 10, 3, "d" * 64)
CELL = Cell(MODEL.id, "pgd(steps=20)@linf:8/255", 1, DATA.id, 0)


def header(cell: Cell = CELL, *, started: str = "2026-01-01", planned: int = 4, **changes: Any) -> RunHeader:
    """Describe a shard."""
    one = RunHeader(
        model=MODEL.to_dict() | {"id": cell.model},
        threat=cell.threat,
        threat_version=cell.threat_version,
        data=DATA.to_dict() | {"id": cell.data},
        task="classification",
        seed=cell.seed,
        device="cpu",
        dtype="float32",
        batch_size=8,
        seconds=0.5,
        started=started,
        versions={"torch": "2"},
        code="/somewhere",
        planned=planned,
        threat_label="pgd@linf:8/255",
        flags=("random output", "masked?"),
    )
    return replace(one, **changes)


def write(
    folder: Path,
    samples: Sequence[str],
    verdicts: Sequence[str],
    *,
    cell: Cell = CELL,
    loss: float = 0.5,
    **changes: Any,
) -> Path:
    """Write one shard with a few measured columns."""
    columns: dict[str, Sequence[Any]] = {
        "verdict": list(verdicts),
        "distance": [0.25] * len(samples),
        "loss": [loss] * len(samples),
        "forwards": [7] * len(samples),
        "top5": [True] * len(samples),
        "detail": [""] * len(samples),
    }
    return ResultStore(folder).write(cell, header(cell, **changes), samples, columns)


def verdicts(frame: pandas.DataFrame) -> dict[str, str]:
    """Return the verdicts by sample."""
    return dict(zip(frame["sample"].astype(str), frame["verdict"].astype(str), strict=True))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write(tmp_path, ["b", "a"], ["survived", "broken"])
    frame = read(tmp_path)
    assert frame["sample"].astype(str).tolist() == ["a", "b"]
    assert frame["verdict"].astype(str).tolist() == ["broken", "survived"]
    assert frame["distance"].tolist() == [0.25, 0.25]
    assert frame["forwards"].tolist() == [7, 7]
    assert frame["top5"].tolist() == [True, True]
    assert (frame["model"].astype(str) == CELL.model).all()
    assert (frame["threat"].astype(str) == CELL.threat).all()
    assert frame["seed"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("task", "classification"),
        ("model_name", "toy"),
        ("data_name", "digits"),
        ("threat_label", "pgd@linf:8/255"),
        ("threat_version", "1"),
        ("classes", "3"),
        ("planned", "4"),
        ("flags", "random output; masked?"),
    ],
)
def test_every_record_knows_what_its_header_says(tmp_path: Path, column: str, value: str) -> None:
    write(tmp_path, ["a"], ["survived"])
    assert read(tmp_path)[column].astype(str).tolist() == [value]


def test_the_header_lies_in_the_file(tmp_path: Path) -> None:
    write(tmp_path, ["a"], ["survived"])
    assert ResultStore(tmp_path).headers()[0]["code"] == "/somewhere"


def test_records_are_sorted_whatever_the_order_of_the_shards(tmp_path: Path) -> None:
    write(tmp_path / "x", ["c", "a"], ["survived", "broken"], started="1")
    write(tmp_path / "x", ["b"], ["mistaken"], started="2")
    write(tmp_path / "y", ["b", "a", "c"], ["mistaken", "broken", "survived"], started="3")
    assert verdicts(read(tmp_path / "x")) == verdicts(read(tmp_path / "y"))
    assert read(tmp_path / "x")["sample"].astype(str).tolist() == ["a", "b", "c"]


def test_several_folders_are_one_frame(tmp_path: Path) -> None:
    write(tmp_path / "x", ["a"], ["survived"])
    write(tmp_path / "y", ["b"], ["broken"])
    assert verdicts(read(tmp_path / "x", tmp_path / "y")) == {"a": "survived", "b": "broken"}


def test_shards_may_measure_different_columns(tmp_path: Path) -> None:
    write(tmp_path, ["a"], ["survived"])
    ResultStore(tmp_path).write(CELL, header(started="later"), ["b"], {"verdict": ["broken"], "speed": [2.5]})
    frame = read(tmp_path)
    assert frame["speed"].isna().tolist() == [True, False]


# What is done


def test_nothing_is_done_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert ResultStore(tmp_path / "new").done(CELL) == set()


def test_every_verdict_but_failed_is_done(tmp_path: Path) -> None:
    write(tmp_path, list("abcde"), ["mistaken", "survived", "broken", "invalid", "failed"])
    assert ResultStore(tmp_path).done(CELL) == set("abcd")


def test_done_is_found_by_sample_however_the_work_was_cut(tmp_path: Path) -> None:
    write(tmp_path, ["a", "c"], ["survived", "broken"], started="1")
    write(tmp_path, ["b"], ["broken"], started="2")
    assert ResultStore(tmp_path).done(CELL) == set("abc")


@pytest.mark.parametrize(
    "change",
    [
        {"model": "other-123"},
        {"threat": "pgd(steps=21)@linf:8/255"},
        {"threat_version": 2},
        {"data": "other-123"},
        {"seed": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_key_has_nothing_done(tmp_path: Path, change: dict[str, Any]) -> None:
    write(tmp_path, ["a"], ["survived"])
    assert ResultStore(tmp_path).done(replace(CELL, **change)) == set()


def test_the_folder_of_a_cell_is_safe_as_a_path() -> None:
    folder = replace(CELL, threat="../up(a=1)@linf:8/255 *?<>|").folder
    assert ".." not in folder
    assert folder.count("/") == 2
    assert not set('*?<>|" ') & set(folder)


def test_a_store_is_not_created_by_looking(tmp_path: Path) -> None:
    ResultStore(tmp_path / "new").done(CELL)
    assert not (tmp_path / "new").exists()


# What went wrong before


def test_a_torn_temporary_file_is_ignored(tmp_path: Path) -> None:
    """R101: a run that was killed while writing."""
    path = write(tmp_path, ["a"], ["survived"])
    path.with_name("shard-0000.123.tmp").write_bytes(b"PAR1 half")
    assert verdicts(read(tmp_path)) == {"a": "survived"}
    assert ResultStore(tmp_path).done(CELL) == {"a"}


def test_no_temporary_file_stays_behind(tmp_path: Path) -> None:
    path = write(tmp_path, ["a"], ["survived"])
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"PAR1 half", b"<html>not found</html>"])
@pytest.mark.parametrize("action", ["read", "done", "headers"])
def test_an_unreadable_shard_is_named_with_its_mend(tmp_path: Path, content: bytes, action: str) -> None:
    path = write(tmp_path, ["a"], ["survived"])
    path.write_bytes(content)
    store = ResultStore(tmp_path)
    actions = {"read": store.frame, "done": lambda: store.done(CELL), "headers": store.headers}
    with pytest.raises(Unusable, match=r"cannot be read .*; delete it and run again") as caught:
        actions[action]()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("action", ["read", "done", "headers"])
def test_a_foreign_parquet_file_is_named(tmp_path: Path, action: str) -> None:
    path = write(tmp_path, ["a"], ["survived"])
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), path)
    store = ResultStore(tmp_path)
    actions = {"read": store.frame, "done": lambda: store.done(CELL), "headers": store.headers}
    with pytest.raises(BadValue, match="was not written by robustkpca; move it out") as caught:
        actions[action]()
    assert str(path) in str(caught.value)


def rewritten(path: Path, change: Callable[[pyarrow.Table], pyarrow.Table]) -> None:
    """Change the records of a shard and keep its header."""
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(change(table).replace_schema_metadata(table.schema.metadata), path)


def retold(path: Path, text: bytes) -> None:
    """Give a shard another header."""
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.replace_schema_metadata({b"robustkpca": text}), path)


def refusal(folder: Path, path: Path) -> str:
    """Return the one line by which reading and resuming refuse a shard."""
    store, said = ResultStore(folder), []
    for action in (store.frame, lambda: store.done(CELL)):
        with pytest.raises(Unusable) as caught:
            action()
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert str(path) in said[0]
    assert "\n" not in said[0]
    return said[0]


@pytest.mark.parametrize("column", ["verdict", "sample", "model", "threat", "data", "seed"])
def test_a_shard_without_one_of_its_columns_is_no_result(tmp_path: Path, column: str) -> None:
    path = write(tmp_path, ["a"], ["survived"])
    rewritten(path, lambda table: table.drop_columns([column]))
    assert f"it has no column {column}" in refusal(tmp_path, path)


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("verdict", ["survived", None], "its column verdict is not text throughout"),
        ("verdict", ["survived", "won"], "it holds the verdict 'won'"),
        ("sample", ["a", None], "its column sample is not text throughout"),
        ("sample", [1, 2], "its column sample is not text throughout"),
    ],
)
def test_records_without_sample_or_verdict_are_no_results(
    tmp_path: Path, column: str, values: list[Any], said: str
) -> None:
    path = write(tmp_path, ["a", "b"], ["survived", "broken"])
    rewritten(path, lambda table: table.set_column(table.column_names.index(column), column, pyarrow.array(values)))
    assert said in refusal(tmp_path, path)


@pytest.mark.parametrize(("column", "value"), [("model", "other"), ("seed", 7), ("seed", "0")])
def test_records_of_something_else_than_the_header_says_are_refused(tmp_path: Path, column: str, value: Any) -> None:
    path = write(tmp_path, ["a"], ["survived"])
    rewritten(path, lambda table: table.set_column(table.column_names.index(column), column, pyarrow.array([value])))
    with pytest.raises(Unusable, match=f"its column {column} and its header disagree"):
        read(tmp_path)


def _changed(**changes: Any) -> bytes:
    return json.dumps(header().to_dict() | changes).encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{}", "its header has schema=None"),
        (b"[]", "its header is a list"),
        (b"{'schema'", "its header is no JSON"),
        (b'{"schema": "\xff"}', "its header is no JSON"),
        (_changed(schema="1"), "its header has schema='1'"),
        (_changed(planned="4"), "its header has planned='4'"),
        (_changed(model={"id": CELL.model}), "its header, model has label=None"),
        (_changed(data="digits"), "its header has data='digits'"),
    ],
)
def test_a_damaged_header_is_named(tmp_path: Path, text: bytes, said: str) -> None:
    path = write(tmp_path, ["a"], ["survived"])
    retold(path, text)
    assert said in refusal(tmp_path, path)


def test_texts_may_be_stored_as_plain_text(tmp_path: Path) -> None:
    """What another tool makes of a shard that it copies."""
    path = write(tmp_path, ["a", "b"], ["survived", "broken"], started="1")
    write(tmp_path, ["c"], ["broken"], started="2")
    before = read(tmp_path)
    plain = {"model": pyarrow.string(), "verdict": pyarrow.large_string(), "sample": pyarrow.large_string()}
    for name, kind in plain.items():
        rewritten(path, lambda t, n=name, k=kind: t.set_column(t.column_names.index(n), n, t[n].cast("string").cast(k)))
    pandas.testing.assert_frame_equal(read(tmp_path), before, check_categorical=False)


def test_a_shard_in_the_folder_of_another_cell_is_named_and_not_believed(tmp_path: Path) -> None:
    other = replace(CELL, seed=1)
    path = write(tmp_path, ["a"], ["survived"])
    (tmp_path / other.folder).mkdir(parents=True)
    moved = path.rename(tmp_path / other.folder / path.name)
    with pytest.raises(Unusable, match="which belong into records/") as caught:
        ResultStore(tmp_path).done(other)
    assert str(moved) in str(caught.value)


def test_a_shard_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path, ["a"], ["survived"])
    path.unlink()
    os.mkfifo(path)
    assert "it is no regular file" in refusal(tmp_path, path)


def test_a_shard_of_a_newer_version_is_not_misread(tmp_path: Path) -> None:
    write(tmp_path, ["a"], ["survived"], schema=RunHeader.SCHEMA + 1)
    with pytest.raises(BadValue, match=r"newer robustkpca .*; upgrade"):
        read(tmp_path)


def test_an_empty_folder_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"no results in .*: expected records/"):
        read(tmp_path)


def test_a_results_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("{}")
    with pytest.raises(BadValue, match="is a file; expected a folder"):
        ResultStore(tmp_path / "out.json")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unusable, match="cannot be written") as caught:
        write(tmp_path / "file" / "out", ["a"], ["survived"])
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_one_line_and_leaves_no_torn_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unusable, match="No space left on device"):
        write(tmp_path, ["a"], ["survived"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# Two records of one sample


def test_equal_records_of_two_runs_are_one(tmp_path: Path) -> None:
    write(tmp_path, ["a", "b"], ["survived", "broken"], started="1")
    write(tmp_path, ["b", "c"], ["broken", "broken"], started="2")
    assert verdicts(read(tmp_path)) == {"a": "survived", "b": "broken", "c": "broken"}


def test_the_same_folder_twice_is_once(tmp_path: Path) -> None:
    write(tmp_path, ["a"], ["survived"])
    assert len(read(tmp_path, tmp_path)) == 1


def test_two_runs_that_disagree_are_an_error_that_names_both_sides(tmp_path: Path) -> None:
    write(tmp_path / "x", ["a", "b"], ["survived", "survived"])
    write(tmp_path / "y", ["a", "b"], ["survived", "broken"])
    with pytest.raises(BadValue, match="disagree about sample b") as caught:
        read(tmp_path / "x", tmp_path / "y")
    message = str(caught.value)
    assert all(part in message for part in (str(tmp_path / "x"), str(tmp_path / "y"), CELL.model, CELL.threat))
    assert f"survived in {tmp_path / 'x'}" in message
    assert f"broken in {tmp_path / 'y'}" in message


def test_measured_losses_of_two_runs_may_differ_by_rounding_alone(tmp_path: Path) -> None:
    for name, loss in (("x", 2.0), ("y", 2.0001), ("z", 2.1)):
        write(tmp_path / name, ["a"], ["measured"], loss=loss)
    assert len(read(tmp_path / "x", tmp_path / "y")) == 1
    with pytest.raises(BadValue, match=r"loss 2 in .*x.* and loss 2\.1 in .*z"):
        read(tmp_path / "x", tmp_path / "z")


@pytest.mark.parametrize("order", [("failed", "broken"), ("broken", "failed")])
def test_a_failed_attempt_gives_way_to_a_verdict(tmp_path: Path, order: tuple[str, str]) -> None:
    for started, verdict in enumerate(order):
        write(tmp_path, ["a", "b"], [verdict, "survived"], started=str(started))
    assert verdicts(read(tmp_path)) == {"a": "broken", "b": "survived"}


def test_two_failed_attempts_are_one(tmp_path: Path) -> None:
    write(tmp_path, ["a", "b"], ["failed", "survived"], started="1")
    write(tmp_path, ["a"], ["failed"], started="2")
    assert verdicts(read(tmp_path)) == {"a": "failed", "b": "survived"}


def test_nothing_but_failures_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, ["a", "b"], ["failed", "failed"])
    assert verdicts(read(tmp_path)) == {"a": "failed", "b": "failed"}


@pytest.mark.parametrize(
    "change",
    [{"model": "other-123"}, {"threat": "fgsm@linf:8/255"}, {"data": "other-123"}, {"seed": 1}],
    ids=lambda change: next(iter(change)),
)
def test_records_of_different_keys_stand_beside_each_other(tmp_path: Path, change: dict[str, Any]) -> None:
    write(tmp_path, ["a"], ["survived"])
    write(tmp_path, ["a"], ["broken"], cell=replace(CELL, **change))
    assert sorted(read(tmp_path)["verdict"].astype(str)) == ["broken", "survived"]


def test_a_large_seed_is_kept_exactly(tmp_path: Path) -> None:
    seed = 2**40 + 1
    write(tmp_path, ["a"], ["survived"], cell=replace(CELL, seed=seed))
    assert read(tmp_path)["seed"].tolist() == [seed]


def test_sample_ids_are_kept_as_text(tmp_path: Path) -> None:
    ids = ["007", "val/ñandú 1.png", "1e3"]
    write(tmp_path, ids, ["survived"] * 3)
    assert sorted(read(tmp_path)["sample"].astype(str)) == sorted(ids)
    assert ResultStore(tmp_path).done(CELL) == set(ids)
