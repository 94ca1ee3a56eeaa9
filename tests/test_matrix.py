"""A run as a value: what a config may say, and how a mistake is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from robustkpca.errors import BadValue
from robustkpca.matrix import Matrix, ModelChoice


def config(folder: Path, text: str) -> Path:
    """Write a config file."""
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_names_and_mappings_are_models() -> None:
    matrix = Matrix.of(models=["a", {"name": "b", "checkpoint": "b.pt", "use_ema": True}])
    assert matrix.models == (ModelChoice(name="a"), ModelChoice(name="b", checkpoint="b.pt", use_ema=True))


def test_one_alone_needs_no_list() -> None:
    matrix = Matrix.of(models="a", threats="linf")
    assert matrix.models == (ModelChoice(name="a"),)
    assert matrix.threats == ("linf",)


def test_nothing_said_is_the_first_run_of_a_newcomer() -> None:
    matrix = Matrix.of()
    assert (matrix.benchmark, matrix.models, matrix.threats, matrix.limit) == ("digits", (), (), None)


@pytest.mark.parametrize(("value", "expected"), [("auto", "auto"), (7, 7), ("7", 7)])
def test_a_batch_size_is_a_number_or_auto(value: int | str, expected: int | str) -> None:
    assert Matrix.of(batch_size=value).batch_size == expected


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"limt": 3}, r"run.yaml: limt: no option named 'limt'. Did you mean 'limit'"),
        ({"source": 3}, r"run.yaml: source: no option named 'source'. Known: batch_size, "),
        ({"limit": 0}, r"run.yaml: limit 0: expected a whole number from 1 up"),
        ({"limit": "many"}, r"run.yaml: limit 'many': expected a whole number"),
        ({"seed": -1}, r"run.yaml: seed -1: expected a whole number from 0 up"),
        ({"protocol": "pixels"}, r"run.yaml: protocol 'pixels': expected 'pixel' or 'published'"),
        ({"batch_size": 0}, r"run.yaml: batch_size 0: expected .* from 1 up, or auto"),
        ({"batch_size": "large"}, r"run.yaml: batch_size 'large': expected .* from 1 up, or auto"),
        ({"shard_size": 0}, r"run.yaml: shard_size 0: "),
        ({"models": 3}, r"run.yaml: models 3: "),
        ({"models": [{"nme": "a"}]}, r"run.yaml: models.0.name: it is missing"),
        (
            {"models": [{"name": "a", "ema": True}]},
            r"run.yaml: models.0.ema: no option named 'ema'. Did you mean 'use_ema'",
        ),
        ({"threats": [3]}, r"run.yaml: threats.0 3: expected a valid string"),
        ({"data": 3}, r"run.yaml: data 3: expected a valid string"),
        ({"device": "two\nlines", "seed": "two\nlines"}, r"run.yaml: seed "),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_that_names_the_field(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadValue, match=complaint) as caught:
        Matrix.of("run.yaml", **values)
    assert "\n" not in str(caught.value)


def test_a_config_gives_the_fields_it_names(tmp_path: Path) -> None:
    path = config(tmp_path, "models: [a]\nseed: 3\nthreats:\n  - pgd(steps=3)@linf:8/255\n")
    assert Matrix.read(path) == {"models": ["a"], "seed": 3, "threats": ["pgd(steps=3)@linf:8/255"]}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("models: [a", "is no YAML"),
        ("\tmodels: a", "is no YAML"),
        ("a: b: c", "is no YAML"),
        ("!!python/object/apply:os.system ['true']", "is no YAML"),
        ("- a\n- b", "expected a mapping such as .*, got list"),
        ("", "expected a mapping such as .*, got NoneType"),
        ("just words", "expected a mapping such as .*, got str"),
        ("3: a", "3 is no option; known: models, threats"),
    ],
)
def test_a_file_that_is_no_config_is_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadValue, match=complaint) as caught:
        Matrix.read(config(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert "run.yaml" in str(caught.value)


def test_bytes_that_are_no_text_are_no_config(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00models")
    with pytest.raises(BadValue, match="is no YAML"):
        Matrix.read(tmp_path / "run.yaml")


@pytest.mark.parametrize(
    ("name", "complaint"), [("nothing.yaml", "No such file"), ("folder", "Is a directory")], ids=["missing", "folder"]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadValue, match=f"{name}: {complaint}.*expected a YAML file"):
        Matrix.read(tmp_path / name)


def test_a_matrix_that_is_kept_is_read_back_the_same(tmp_path: Path) -> None:
    matrix = Matrix.of(models=["a", {"name": "b", "dtype": "float64"}], threats=["linf"], limit=5, batch_size=16)
    assert Matrix.of(**Matrix.read(matrix.write(tmp_path))) == matrix


def test_the_same_matrix_is_kept_once(tmp_path: Path) -> None:
    for seed in (0, 0, 1):
        Matrix.of(seed=seed).write(tmp_path)
    kept = sorted((tmp_path / "configs").iterdir())
    assert sorted(yaml.safe_load(path.read_text())["seed"] for path in kept) == [0, 1]


def test_a_matrix_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Matrix.of().seed = 3


@pytest.mark.parametrize(
    "text",
    [
        "seed: 2020-99-99",
        "seed: !!timestamp x",
        "seed: !!int foo",
        "seed: !!float abc",
        "seed: !!bool x",
        "models: " + "[" * 3000,
        "{a: " * 2000,
        "limit: " + "9" * 5000,
        "limit: 1\nlimit: 2",
        "models: [{name: a, name: b}]",
        "limit: true",
        "limit: 1:30",
        'limit: "5"',
        "seed: 9223372036854775808",
        "seed: true",
        "batch_size: true",
        "batch_size: 1.0",
        "shard_size: 1.0",
    ],
    ids=lambda text: text[:24],
)
def test_what_yaml_cannot_mean_is_one_line_and_never_another_number(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(BadValue) as caught:
        Matrix.of("run.yaml", **Matrix.read(path))
    assert "\n" not in str(caught.value)


def test_a_matrix_that_cannot_be_kept_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        Matrix().write(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
