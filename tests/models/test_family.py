"""The bundled family: weights that load strictly, and networks that learned their task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import robustkpca
from robustkpca.data import open_data
from robustkpca.models import CATALOGUE, load_model

FOLDER = Path(robustkpca.__file__).parent / "models" / "bundled"
NAMES = json.loads((FOLDER / "family.json").read_text())["models"]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_bundled_weights_are_those_on_record_and_know_the_digits(name: str) -> None:
    assert "bundled" in CATALOGUE[name].tags
    model, data = load_model(name), open_data("digits")
    assert model.spec.weights == NAMES[name]["weights"]
    assert load_model(NAMES[name]["model"], FOLDER / f"{name}.safetensors").spec.weights == model.spec.weights
    rows = range(0, len(data.ids), 4)
    with model.evaluating():
        predicted = model.logits(data.read(rows, model.spec.preprocessing)).argmax(1)
    right = (predicted == torch.tensor(data.labels)[list(rows)]).double().mean().item()
    assert right > 0.6


def test_every_bundled_name_is_on_record() -> None:
    plain = json.loads((FOLDER / "provenance.json").read_text())["models"]
    novel = json.loads((FOLDER / "novel.json").read_text())["models"]
    tagged = {name for name, entry in CATALOGUE.items() if "bundled" in entry.tags}
    assert tagged == {*NAMES, *plain, *novel}
    assert tagged == {path.stem for path in FOLDER.glob("*.safetensors")}
