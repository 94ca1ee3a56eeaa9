"""Diagnosis of whole networks: every head is measured, and the claims follow from the measures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from robustkpca.commands import cli
from robustkpca.data import open_data
from robustkpca.diagnosis import MEASURES, Diagnosis, Head, diagnose
from robustkpca.errors import BadValue
from robustkpca.kernel_pca import reconstruction_error
from robustkpca.models import load_model
from robustkpca.models.loading import wrap


def found(name: str = "rpc_symvit_digits", count: int = 2, **options: object) -> Diagnosis:
    model, data = load_model(name), open_data("digits")
    return diagnose(model, data.read(range(count), model.spec.preprocessing), **options)  # type: ignore[arg-type]


def test_every_head_is_measured_and_the_pursuit_traced() -> None:
    diagnosis = found("rpc_symvit_digits(layers=[0,2])")
    assert [(head.layer, head.head) for head in diagnosis.heads] == [(layer, h) for layer in range(4) for h in range(3)]
    assert all(head.measures.keys() == MEASURES.keys() for head in diagnosis.heads)
    assert [len(head.passes) for head in diagnosis.heads[::3]] == [4, 0, 4, 0]
    assert len(diagnosis.layers()) == 4
    assert json.loads(json.dumps(diagnosis.to_dict()))["images"] == 2


def test_transformers_of_timm_are_measured_as_their_own_projections_say() -> None:
    torch.manual_seed(0)
    network = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)
    images = torch.rand(3, 3, 32, 32)
    diagnosis = diagnose(wrap(network), images)
    with torch.no_grad():
        tokens = network.blocks[0].norm1(network._pos_embed(network.patch_embed(images)))
        parts = network.blocks[0].attn.qkv(tokens).reshape(3, 17, 3, 3, 8).permute(2, 0, 3, 1, 4).double()
    expected = reconstruction_error(*parts)
    for head in range(3):
        for name in ("phi", "h", "error"):
            assert diagnosis.heads[head].measures[name] == pytest.approx(
                expected[name][:, head].mean().item(), rel=1e-4
            )


def test_standardising_changes_queries_and_keys_alone() -> None:
    plain, changed = found(), found(standardise=True)
    assert changed.standardised
    assert changed.heads[0].measures["phi"] != plain.heads[0].measures["phi"]
    assert found() == plain


def test_claims_follow_from_the_measures() -> None:
    good = dict.fromkeys(MEASURES, 1.0) | {"h": 0.5, "gamma_relative": 1e-6, "gamma_relative_random": 0.7}
    bad = dict.fromkeys(MEASURES, 0.1) | {"h": 30.0, "gamma_relative": 0.6, "gamma_relative_random": 0.7}
    verdicts = []
    for measures in (good, bad):
        diagnosis = Diagnosis("net", 1, False, (Head(0, 0, measures),))
        verdicts.append([claim["here"] for claim in diagnosis.claims()])
    assert verdicts == [["not contradicted", "supported", "supported"], ["contested"] * 3]


def test_networks_without_attention_are_refused() -> None:
    network = wrap(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    with pytest.raises(BadValue, match="has no attention that can be looked into"):
        diagnose(network, torch.rand(2, 1, 8, 8))
    with pytest.raises(BadValue, match="got no images"):
        diagnose(network, torch.rand(0, 1, 8, 8))


def test_the_command_prints_tables_claims_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["diagnose", "rpc_symvit_digits", "--limit", "1"], standalone_mode=False)
    said = capsys.readouterr().out
    assert "kernel CKA" in said
    assert "pass 4" in said
    assert "contested here" in said
    cli.main(["diagnose", "symvit_digits", "--limit", "1", "--json"], standalone_mode=False)
    assert len(json.loads(capsys.readouterr().out)["heads"]) == 12


def test_figures_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from robustkpca.diagnosis_plots import FIGURES, draw

    diagnosis = found(count=1)
    written = draw(diagnosis, tmp_path / "one")
    assert sorted(path.stem for path in written) == sorted([*FIGURES, "pursuit"])
    again = draw(diagnosis, tmp_path / "two")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
    plain = replace(diagnosis, heads=tuple(replace(head, passes=()) for head in diagnosis.heads))
    assert len(draw(plain, tmp_path / "three")) == len(FIGURES)
