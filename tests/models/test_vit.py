"""Vision transformers: recorded logits and gradients, sizes and key names, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file

from robustkpca.errors import BadValue
from robustkpca.models import digits, vit
from robustkpca.models.attention import RPCAttention, SoftmaxAttention, SymmetricAttention
from robustkpca.models.vision_transformer import VisionTransformer
from robustkpca.preprocessing import Preprocessing

GOLDEN = Path(__file__).parent.parent / "golden" / "attention"
CASES: dict[str, Any] = json.loads((GOLDEN / "cases.json").read_text())
SHAPE: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "num_classes": 10,
    "embed_dim": 48,
    "depth": 2,
    "num_heads": 3,
}
DIGITS: dict[str, Any] = {"img_size": 8, "patch_size": 2, "in_chans": 1, "num_classes": 10}
SMALL: dict[str, Any] = {**DIGITS, "embed_dim": 12, "depth": 3, "num_heads": 3}


def golden_model(case: str, variant: str) -> VisionTransformer:
    kwargs = CASES[case]["variants"][variant].get("kwargs", {})
    if case == "vit_softmax_timm_io":
        model = vit.softmax_vit_tiny(**SHAPE)
    elif kwargs:
        layers = "all" if kwargs["layer"] < 0 else kwargs["layer"]
        model = vit.rpc_symvit_tiny(**SHAPE, iterations=kwargs["n"], lambda_=kwargs["lambd"], layers=layers)
    else:
        model = vit.symvit_tiny(**SHAPE)
    model.load_state_dict(load_file(GOLDEN / CASES[case]["state_dict"]), strict=True)
    return model.eval()


GOLDEN_VARIANTS = [(case, v) for case in ("vit_sym_rpc_io", "vit_softmax_timm_io") for v in CASES[case]["variants"]]


@pytest.mark.parametrize(("case", "variant"), GOLDEN_VARIANTS)
def test_logits_and_gradients_are_those_of_the_reference(case: str, variant: str) -> None:
    tensors, tolerance = load_file(GOLDEN / f"{case}.safetensors"), CASES[case]["variants"][variant]
    images = tensors["x"].requires_grad_(True)
    logits = golden_model(case, variant)(images)
    expected = tensors[f"{variant}.out"]
    assert (logits - expected).abs().max() <= tolerance["suggested_atol_out"]
    assert (logits - expected).norm() <= tolerance["suggested_rel_l2_out"] * expected.norm()
    for cotangent, name in ((torch.ones_like(logits), "grad_x"), (tensors["cot"], "grad_x_cot")):
        (gradient,) = torch.autograd.grad(logits, images, cotangent, retain_graph=True)
        expected = tensors[f"{variant}.{name}"]
        assert (gradient - expected).norm() <= tolerance["suggested_rel_l2_grad"] * expected.norm()


def test_the_softmax_transformer_is_that_of_timm_with_the_same_weights() -> None:
    theirs = timm.create_model("deit_tiny_patch16_224", depth=2).eval()
    ours = vit.softmax_vit_tiny(depth=2).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    images = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "parameters", "width"),
    [
        ("softmax_vit_tiny", 5_717_416, 192),
        ("softmax_vit_small", 22_050_664, 384),
        ("softmax_vit_base", 86_567_656, 768),
        ("symvit_tiny", 5_272_744, 192),
        ("symvit_small", 20_276_584, 384),
        ("symvit_base", 79_480_552, 768),
        ("rpc_symvit_tiny", 5_272_744, 192),
        ("rpc_symvit_small", 20_276_584, 384),
        ("rpc_symvit_base", 79_480_552, 768),
    ],
)
def test_sizes_and_key_names_are_the_published_ones(name: str, parameters: int, width: int) -> None:
    with torch.device("meta"):
        model = getattr(vit, name)()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    projections = 3 if name.startswith("softmax") else 2
    block = {
        "norm1.weight": (width,),
        "norm1.bias": (width,),
        "attn.qkv.weight": (projections * width, width),
        "attn.qkv.bias": (projections * width,),
        "attn.proj.weight": (width, width),
        "attn.proj.bias": (width,),
        "norm2.weight": (width,),
        "norm2.bias": (width,),
        "mlp.fc1.weight": (4 * width, width),
        "mlp.fc1.bias": (4 * width,),
        "mlp.fc2.weight": (width, 4 * width),
        "mlp.fc2.bias": (width,),
    }
    expected = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, 197, width),
        "patch_embed.proj.weight": (width, 3, 16, 16),
        "patch_embed.proj.bias": (width,),
        "norm.weight": (width,),
        "norm.bias": (width,),
        "head.weight": (1000, width),
        "head.bias": (1000,),
        **{f"blocks.{index}.{key}": shape for index in range(12) for key, shape in block.items()},
    }
    assert len(expected) == 152
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == expected


def test_the_published_small_symvit_can_be_built_at_its_own_width() -> None:
    with torch.device("meta"):
        model = vit.symvit_small(embed_dim=348)
    assert sum(parameter.numel() for parameter in model.parameters()) == 16_722_052


def test_one_checkpoint_serves_every_choice_of_iterations_and_layers() -> None:
    weights = vit.symvit_tiny(**SMALL).state_dict()
    for options in ({"iterations": 6}, {"layers": "all"}, {"layers": [0, 2], "lambda_": 1.0}):
        vit.rpc_symvit_tiny(**SMALL, **options).load_state_dict(weights, strict=True)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [(0, [0]), (2, [2]), ((0, 2), [0, 2]), ([1], [1]), ("all", [0, 1, 2])],
)
def test_layers_choose_the_blocks_with_rpc_attention(layers: Any, expected: list[int]) -> None:
    model = vit.rpc_symvit_tiny(**SMALL, layers=layers)
    chosen = [index for index, block in enumerate(model.blocks) if isinstance(block.attn, RPCAttention)]
    assert chosen == expected
    assert all(isinstance(block.attn, SymmetricAttention) for block in model.blocks)


def test_the_other_blocks_can_be_softmax_with_the_weights_of_a_softmax_transformer() -> None:
    model = vit.rpc_symvit_tiny(**SMALL, others="softmax")
    model.load_state_dict(vit.softmax_vit_tiny(**SMALL).state_dict(), strict=True)
    assert [type(block.attn) for block in model.blocks] == [RPCAttention, SoftmaxAttention, SoftmaxAttention]


def test_options_reach_the_pursuit() -> None:
    options = {"iterations": 3, "lambda_": 0.5, "threshold": "lambda/mu", "mu_dim": "d", "variant": "rebuttal-layer"}
    pursuit = vit.rpc_symvit_tiny(**SMALL, **options).blocks[0].attn.pursuit
    assert vars(pursuit) == options


def test_images_need_not_be_square() -> None:
    model = vit.rpc_symvit_tiny(**{**SMALL, "img_size": (8, 12)})
    assert model(torch.rand(2, 1, 8, 12)).shape == (2, 10)
    assert model.pos_embed.shape == (1, 1 + 4 * 6, 12)


def test_patches_are_read_row_by_row() -> None:
    model = vit.symvit_tiny(**{**SMALL, "img_size": (4, 6)})
    images = torch.zeros(1, 1, 4, 6)
    images[0, 0, 0:2, 2:4] = 1.0
    lit = (model.patch_embed(images) - model.patch_embed(torch.zeros_like(images))).abs().sum(-1)[0]
    assert lit.nonzero().flatten().tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_whole_model_runs_in_other_precisions(dtype: torch.dtype) -> None:
    model = vit.rpc_symvit_tiny(**SMALL).to(dtype)
    logits = model(torch.rand(2, 1, 8, 8, dtype=dtype))
    assert logits.dtype is dtype
    assert logits.isfinite().all()


def test_preprocessing_is_that_of_the_published_evaluation() -> None:
    with torch.device("meta"):
        assert vit.symvit_tiny().preprocessing == Preprocessing(
            256, 224, "bicubic", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        )


def test_greyscale_models_take_images_as_they_are() -> None:
    assert vit.symvit_tiny(**SMALL).preprocessing == Preprocessing(channels=1)


def test_non_square_models_leave_the_size_alone() -> None:
    model = vit.symvit_tiny(img_size=(32, 16), embed_dim=12, depth=1)
    assert (model.preprocessing.resize, model.preprocessing.crop, len(model.preprocessing.mean)) == (None, None, 3)


def test_no_classes_means_features() -> None:
    assert vit.symvit_tiny(**{**SMALL, "num_classes": 0})(torch.rand(2, 1, 8, 8)).shape == (2, 12)


def test_drop_path_grows_with_depth_and_acts_only_in_training() -> None:
    model = vit.symvit_tiny(**SMALL, drop_path=0.5)
    assert [block.drop_path for block in model.blocks] == [0.0, 0.25, 0.5]
    images = torch.rand(4, 1, 8, 8)
    model.eval()
    assert torch.equal(model(images), model(images))
    model.train()
    assert not torch.equal(model(images), model(images))


def test_initial_weights_are_published_or_those_of_timm() -> None:
    published, as_timm = (vit.softmax_vit_tiny(**DIGITS, depth=1, init=init) for init in ("published", "timm"))
    assert published.blocks[0].attn.qkv.weight.abs().max().item() == pytest.approx(192**-0.5, rel=1e-3)
    assert as_timm.blocks[0].attn.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert as_timm.blocks[0].mlp.fc1.bias.abs().max().item() == 0.0
    assert published.pos_embed.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 5}, "embed_dim 12 is not a multiple of num_heads 5"),
        ({"img_size": 9}, "img_size 9 is not a multiple of patch_size 2"),
        ({"img_size": (8, 8, 8)}, "img_size is .*; expected a number of pixels"),
        ({"img_size": 0}, "img_size is 0"),
        ({"in_chans": 2}, r"in_chans is 2; expected 3 \(RGB\) or 1"),
        ({"num_classes": -1}, "num_classes is -1"),
        ({"embed_dim": 0}, "embed_dim is 0"),
        ({"depth": 0}, "depth is 0"),
        ({"mlp_ratio": 0.0}, "mlp_ratio is 0.0"),
        ({"drop_path": 1.0}, "drop_path is 1.0"),
        ({"init": "kaiming"}, "init is 'kaiming'; expected one of published, timm"),
        ({"layers": 3}, "layers is 3; expected indices from 0 to 2"),
        ({"layers": -1}, "or all"),
        ({"layers": "first"}, "layers is 'first'"),
        ({"layers": (0, 7)}, r"layers is \(0, 7\)"),
        ({"others": "none"}, "others is 'none'"),
        ({"iterations": 0}, "iterations is 0"),
    ],
)
def test_a_value_out_of_range_is_named_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message) as error:
        vit.rpc_symvit_tiny(**{**SMALL, **options})
    assert "\n" not in str(error.value)


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(BadValue, match=r"images are \(2, 1, 9, 8\); this model was built for"):
        vit.symvit_tiny(**SMALL)(torch.rand(2, 1, 9, 8))


@pytest.mark.parametrize("name", ["softmax_vit_digits", "symvit_digits", "rpc_symvit_digits"])
def test_digit_models_fit_eight_by_eight_images_and_name_their_weights(name: str) -> None:
    model = getattr(digits, name)()
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    assert (len(model.blocks), model.embed_dim, model.pos_embed.shape[1]) == (4, 48, 17)
    assert model.bundled_checkpoint == f"{name}.safetensors"
    assert model.preprocessing == Preprocessing(channels=1)


def test_digit_models_take_other_iterations() -> None:
    model = digits.rpc_symvit_digits(iterations=6, layers="all")
    assert [block.attn.pursuit.iterations for block in model.blocks] == [6, 6, 6, 6]
