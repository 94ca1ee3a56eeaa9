"""What was evaluated has an id that changes with it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from robustkpca.preprocessing import Preprocessing
from robustkpca.specs import DataSpec, ModelSpec, fingerprint, slug

MODEL = ModelSpec("rpc_symvit_tiny(iterations=4)", "a" * 64, Preprocessing())
DATA = DataSpec("digits", "arrays", 540, 10, "d" * 64)


def test_a_fingerprint_is_the_sha256_of_the_canonical_json() -> None:
    assert fingerprint({"b": 1, "a": [1, "x"]}) == hashlib.sha256(b'{"a":[1,"x"],"b":1}').hexdigest()


def test_a_fingerprint_does_not_depend_on_the_order_of_a_mapping() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pgd(steps=20)@linf:8/255", "pgd-steps-20-linf-8-255"),
        ("../../etc/passwd", "etc-passwd"),
        ("***", "unnamed"),
        ("x" * 99, "x" * 48),
    ],
)
def test_a_slug_is_safe_as_a_file_name(text: str, expected: str) -> None:
    assert slug(text) == expected


def test_a_model_id_starts_with_the_name_without_its_arguments() -> None:
    assert MODEL.id.startswith("rpc-symvit-tiny-")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "rpc_symvit_tiny(iterations=5)"},
        {"weights": "b" * 64},
        {"preprocessing": Preprocessing(crop=8)},
        {"dtype": "float64"},
        {"code": "x" * 64},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_identity_is_another_model_id(change: dict[str, object]) -> None:
    assert replace(MODEL, **change).id != MODEL.id  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"checkpoint": "c" * 64}, {"checkpoint_key": "model_ema"}])
def test_the_file_that_held_the_weights_is_no_part_of_the_model_id(change: dict[str, str]) -> None:
    assert replace(MODEL, **change).id == MODEL.id  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [{"name": "numbers"}, {"layout": "folder"}, {"size": 541}, {"classes": 11}, {"digest": "e" * 64}],
    ids=lambda change: next(iter(change)),
)
def test_another_data_set_is_another_id(change: dict[str, object]) -> None:
    assert replace(DATA, **change).id != DATA.id  # type: ignore[arg-type]


def test_a_data_set_that_was_moved_keeps_its_id() -> None:
    assert replace(DATA, path="/elsewhere") == DATA
    assert replace(DATA, path="/elsewhere").id == DATA.id


@pytest.mark.parametrize("spec", [MODEL, DATA], ids=["model", "data"])
def test_a_specification_is_plain_json(spec: ModelSpec | DataSpec) -> None:
    assert json.loads(json.dumps(spec.to_dict()))["id"] == spec.id
