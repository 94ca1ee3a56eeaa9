from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy
import pytest

from robustkpca.data import digest
from robustkpca.data.digest import array_digest, files_digest
from robustkpca.data.layout import open_data
from robustkpca.specs import fingerprint

Picture = Callable[..., Path]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(b"first")
    (tmp_path / "b").write_bytes(b"second")
    return tmp_path


def test_the_digest_covers_ids_labels_and_contents(files: Path) -> None:
    contents = [sha256(b"first").hexdigest(), sha256(b"second").hexdigest()]
    assert files_digest(files, ["a", "b"], [0, 1]) == (fingerprint([["a", "b"], [0, 1], contents]), "contents")


def test_another_content_of_the_same_size_is_another_digest(files: Path) -> None:
    before = files_digest(files, ["a", "b"], [0, 1])
    (files / "a").write_bytes(b"frist")
    assert files_digest(files, ["a", "b"], [0, 1]) != before


def test_another_time_stamp_is_the_same_digest(files: Path) -> None:
    before = files_digest(files, ["a", "b"], [0, 1])
    os.utime(files / "a", (0, 0))
    assert files_digest(files, ["a", "b"], [0, 1]) == before


def test_large_sets_are_told_apart_by_names_and_sizes(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "CONTENTS_LIMIT", 10)
    value, what = files_digest(files, ["a", "b"], [0, 1])
    assert what == "names and sizes"
    (files / "a").write_bytes(b"frist")
    assert files_digest(files, ["a", "b"], [0, 1])[0] == value
    (files / "a").write_bytes(b"longer")
    assert files_digest(files, ["a", "b"], [0, 1])[0] != value


def test_a_set_of_exactly_the_limit_is_read(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "CONTENTS_LIMIT", 11)
    assert files_digest(files, ["a", "b"], [0, 1])[1] == "contents"


def test_an_array_is_digested_piece_by_piece_to_the_same_value(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = numpy.arange(4 * 6 * 6, dtype=numpy.uint8).reshape(4, 6, 6)
    whole = array_digest(["a"], [0], pixels)
    monkeypatch.setattr(digest, "_PIECE", 40)
    assert array_digest(["a"], [0], pixels) == whole


def test_a_data_set_that_moved_keeps_its_fingerprint(tmp_path: Path, picture: Picture) -> None:
    picture("here/pets/cat/a.png")
    before = open_data(tmp_path / "here/pets").spec
    (tmp_path / "here").rename(tmp_path / "there")
    after = open_data(tmp_path / "there/pets").spec
    assert after == before
    assert after.id == before.id
    assert after.path != before.path
