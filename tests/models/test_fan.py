"""Fully attentional networks: recorded outputs of the references, sizes and key names, and any attention by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from robustkpca.errors import BadValue
from robustkpca.models import create_model, fan
from robustkpca.models.fully_attentional import FAN
from robustkpca.models.mechanisms import ATTENTIONS
from robustkpca.preprocessing import Preprocessing

GOLDEN = Path(__file__).parent.parent / "golden" / "attention"
CASES: dict[str, Any] = json.loads((GOLDEN / "cases.json").read_text())
SHAPE = {"img_size": 8, "patch_size": 2, "in_chans": 1, "num_classes": 10, "embed_dim": 24, "depth": 2, "num_heads": 3}
RECORDED = [("fan_io", "fan", "softmax"), ("fan_sym_io", "sym", "symmetric"), ("fan_sym_io", "rpc", "rpc")]
PARTS = ("model", "block", "tokenmixing")


def golden_model(case: str, attention: str) -> FAN:
    shape = {
        name: value for name, value in CASES[case]["ctor"].items() if name not in ("sr_ratio", "eta", "tokens_norm")
    }
    model = fan.fan_tiny(attention=attention, **shape)
    model.load_state_dict(load_file(GOLDEN / CASES[case]["state_dict"]), strict=True)
    return model.eval()


def compared(actual: Tensor, inputs: Tensor, tensors: dict[str, Tensor], prefix: str, cotangent: Tensor) -> Any:
    """Return the largest error of an output, and the relative errors of the output and of both gradients."""
    expected = tensors[f"{prefix}out"]
    errors = [(actual - expected).abs().max().item(), ((actual - expected).norm() / expected.norm()).item()]
    for weights, name in ((torch.ones_like(actual), "grad_x"), (cotangent, "grad_x_cot")):
        (gradient,) = torch.autograd.grad(actual, inputs, weights, retain_graph=True)
        expected = tensors[f"{prefix}{name}"]
        errors.append(((gradient - expected).norm() / expected.norm()).item())
    return errors


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("case", "variant", "attention"), RECORDED)
def test_outputs_and_gradients_are_those_of_the_reference(case: str, variant: str, attention: str, part: str) -> None:
    tensors, tolerance = load_file(GOLDEN / f"{case}.safetensors"), CASES[case]["variants"][variant][part]
    model = golden_model(case, attention)
    inputs = tensors["x" if part == "model" else "block.x"].requires_grad_(True)
    size = (4, 4)
    run = {
        "model": lambda: model(inputs),
        "block": lambda: model.blocks[0](inputs, size),
        "tokenmixing": lambda: model.blocks[0].attn(inputs),
    }
    prefix = f"{variant}." if part == "model" else f"{part}.{variant}."
    cotangent = tensors["cot" if part == "model" else "block.cot"]
    largest, output, plain, weighted = compared(run[part](), inputs, tensors, prefix, cotangent)
    assert largest <= tolerance["suggested_atol_out"]
    assert output <= tolerance["suggested_rel_l2_out"]
    assert max(plain, weighted) <= tolerance["suggested_rel_l2_grad"]


@pytest.mark.parametrize(("case", "variant", "attention"), RECORDED[:2])
def test_channel_processing_is_that_of_the_reference(case: str, variant: str, attention: str) -> None:
    tensors = load_file(GOLDEN / f"{case}.safetensors")
    inputs = tensors["block.x"].requires_grad_(True)
    output = golden_model(case, attention).blocks[0].mlp(inputs, (4, 4))
    errors = compared(output, inputs, tensors, f"channelprocessing.{variant}.", tensors["block.cot"])
    assert max(errors[1:]) < 1e-5


@pytest.mark.parametrize(
    ("name", "parameters", "tensors"),
    [
        ("fan_tiny", 7_319_920, 439),
        ("symfan_tiny", 6_801_136, 411),
        ("rpc_fan_tiny", 6_801_136, 411),
    ],
)
def test_tiny_networks_have_the_published_size(name: str, parameters: int, tensors: int) -> None:
    with torch.device("meta"):
        model = getattr(fan, name)()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert len(model.state_dict()) == tensors


@pytest.mark.parametrize(("size", "millions"), [("tiny", 7.3), ("small", 28.3), ("base", 54.0), ("large", 80.5)])
def test_sizes_are_those_of_the_paper(size: str, millions: float) -> None:
    with torch.device("meta"):
        model = getattr(fan, f"fan_{size}")()
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("symmetric", [False, True])
def test_key_names_and_shapes_are_the_published_ones(symmetric: bool) -> None:
    with torch.device("meta"):
        model = fan.symfan_tiny() if symmetric else fan.fan_tiny()
    width, hidden = 192, 768

    def layer(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}

    def norm(name: str, dim: int = width) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}

    def batch_norm(name: str, dim: int) -> dict[str, tuple[int, ...]]:
        return {**norm(name, dim), f"{name}.running_mean": (dim,), f"{name}.running_var": (dim,)} | {
            f"{name}.num_batches_tracked": ()
        }

    expected: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, width), **norm("norm"), **layer("head", 1000, width)}
    for place, (before, after) in enumerate(((3, 24), (24, 48), (48, 96), (96, 192))):
        expected[f"patch_embed.proj.{2 * place}.0.weight"] = (after, before, 3, 3)
        expected |= batch_norm(f"patch_embed.proj.{2 * place}.1", after)
    expected |= {"pos_embed.token_projection.weight": (192, 64, 1, 1), "pos_embed.token_projection.bias": (192,)}
    for index in range(12):
        block: dict[str, tuple[int, ...]] = {"gamma1": (width,), "gamma2": (width,), **norm("norm1"), **norm("norm2")}
        block |= {**layer("attn.kv", 2 * width, width), **layer("attn.proj", width, width)}
        block |= {"mlp.temperature": (4, 1, 1), "mlp.mlp_v.gamma": (hidden,), **layer("mlp.q", width, width)}
        block |= {**layer("mlp.mlp_v.fc1", hidden, width), **layer("mlp.mlp_v.fc2", width, hidden)}
        block |= {**norm("mlp.norm_v"), **batch_norm("mlp.mlp_v.dwconv.bn", hidden)}
        for convolution in ("conv1", "conv2"):
            block[f"mlp.mlp_v.dwconv.{convolution}.weight"] = (hidden, 1, 3, 3)
            block[f"mlp.mlp_v.dwconv.{convolution}.bias"] = (hidden,)
        block |= {} if symmetric else layer("attn.q", width, width)
        expected |= {f"blocks.{index}.{key}": shape for key, shape in block.items()}
    for index in range(2):
        block = {"gamma1": (width,), "gamma2": (width,), **norm("norm1"), **norm("norm2")}
        for part in ("k", "v", "proj") if symmetric else ("q", "k", "v", "proj"):
            block |= layer(f"attn.{part}", width, width)
        block |= {**layer("mlp.fc1", hidden, width), **layer("mlp.fc2", width, hidden)}
        expected |= {f"cls_attn_blocks.{index}.{key}": shape for key, shape in block.items()}
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == expected


@pytest.mark.parametrize("attention", sorted(ATTENTIONS))
def test_token_mixing_takes_any_attention_by_name(attention: str) -> None:
    model = create_model(f"fan_tiny(attention={attention})", **SHAPE).eval()
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    logits = model(images)
    assert logits.shape == (4, 10)
    assert logits.isfinite().all()
    assert isinstance(model.blocks[0].attn, ATTENTIONS[attention].load())
    keys = {name for name in model.state_dict() if name.startswith("blocks.0.attn.")}
    queries = {"blocks.0.attn.q.weight", "blocks.0.attn.q.bias"}
    assert (queries <= keys) == (attention not in ("symmetric", "rpc"))
    with torch.no_grad():
        torch.testing.assert_close(model(images[:1]), logits[:1], rtol=0, atol=1e-5)


def test_the_published_evaluation_does_not_crop() -> None:
    with torch.device("meta"):
        prepared = fan.fan_tiny().preprocessing
    assert prepared == Preprocessing(224, 224, "bicubic", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_drop_path_acts_only_in_training() -> None:
    model = fan.fan_tiny(**SHAPE, drop_path=0.5).eval()
    images = torch.rand(4, 1, 8, 8)
    assert torch.equal(model(images), model(images))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.0
    model.train()
    assert not torch.equal(model(images), model(images))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": 3}, "patch_size is 3; expected one of 16, 8, 4, 2"),
        ({"img_size": 9}, "img_size 9 is not a multiple of patch_size 2"),
        ({"embed_dim": 12}, "embed_dim is 12; expected a multiple of 8"),
        ({"num_heads": 5}, "embed_dim 24 is not a multiple of num_heads 5"),
        ({"in_chans": 2}, r"in_chans is 2; expected 3 \(RGB\) or 1"),
        ({"class_depth": 0}, "class_depth is 0"),
        ({"drop_path": 1.0}, "drop_path is 1.0"),
        ({"depth": 0}, "depth is 0"),
    ],
)
def test_a_value_out_of_range_is_named_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        create_model("fan_tiny", **{**SHAPE, **options})
