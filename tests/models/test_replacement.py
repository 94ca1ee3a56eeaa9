"""Another attention in a trained transformer: weights carried over, and nothing else changed."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from robustkpca.errors import BadValue, UnknownName
from robustkpca.models import create_model, vit
from robustkpca.models.attention import RPCAttention
from robustkpca.models.pursuit import Pursuit, principal_component_pursuit_attention
from robustkpca.models.replacement import with_attention

TIMM = "timm/vit_tiny_patch16_224"
SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 5}


def small() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = timm.create_model("vit_tiny_patch16_224", **SMALL).eval()
    return model


def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def attention_by_hand(attn: Any, tokens: Tensor, pursuit: Pursuit) -> Tensor:
    """The pursuit over timm's own key and value projections."""
    batch, count, width = tokens.shape
    _, keys, values = attn.qkv(tokens).reshape(batch, count, 3, attn.num_heads, -1).permute(2, 0, 3, 1, 4)
    heads = principal_component_pursuit_attention(keys, values, pursuit)
    output: Tensor = attn.proj(heads.transpose(1, 2).reshape(batch, count, width))
    return output


@pytest.mark.parametrize("queries", ["ignored", "dropped"])
def test_keys_become_queries_and_every_weight_is_carried_over(queries: str) -> None:
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    changed = with_attention(model, "rpc", layers=1, queries=queries, iterations=3, lambda_=0.5)
    tokens = torch.randn(2, 17, 24)
    expected = attention_by_hand(model.blocks[1].attn, tokens, Pursuit(3, 0.5))
    torch.testing.assert_close(changed.blocks[1].attn(tokens), expected)
    for index in (0, 2):
        assert type(changed.blocks[index].attn) is type(model.blocks[index].attn)
    assert not torch.allclose(changed(images()), model(images()))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    state = changed.state_dict()
    assert state.keys() == before.keys()
    for name, value in state.items():
        whole = before[name][24:] if name.startswith("blocks.1.attn.qkv") and queries == "dropped" else before[name]
        assert torch.equal(value, whole), name


def test_softmax_put_in_is_what_was_there() -> None:
    model = small()
    for attention, options in (("softmax", {}), ("scaled", {"form": "S"}), ("scaled", {"form": "alpha"})):
        changed = with_attention(model, attention, layers="all", **options)
        torch.testing.assert_close(changed(images()), model(images()))


def test_a_pursuit_that_clips_nothing_is_symmetric_attention() -> None:
    model = small()
    robust = with_attention(model, "rpc", layers="all", iterations=1, lambda_=1e4)
    torch.testing.assert_close(robust(images()), with_attention(model, "symmetric")(images()))


def test_gradients_reach_keys_values_and_images_but_no_ignored_query() -> None:
    changed = with_attention(small(), "rpc", layers=0)
    inputs = images().requires_grad_(True)
    changed(inputs).square().sum().backward()
    gradient = changed.blocks[0].attn.qkv.weight.grad
    assert not gradient[:24].any()
    assert gradient[24:48].any()
    assert gradient[48:].any()
    assert inputs.grad is not None
    assert inputs.grad.any()


def test_a_name_of_timm_takes_an_attention(tmp_path: Any) -> None:
    text = f"{TIMM}(attention=rpc,layers=[0,2],iterations=2)"
    model = create_model(text, **SMALL)
    assert [isinstance(block.attn, RPCAttention) for block in model.blocks] == [True, False, True]
    assert model.canonical_name.startswith(f"{TIMM}(attention=rpc,depth=3")
    plain = create_model(TIMM, **SMALL)
    assert model.preprocessing == plain.preprocessing
    model.load_state_dict(plain.state_dict(), strict=True)
    assert create_model(f"{TIMM}(attention=kde)", **SMALL)(images()).shape == (2, 5)


def test_transformers_of_this_package_and_half_precision_are_taken() -> None:
    model = vit.softmax_vit_tiny(**SMALL).to(torch.bfloat16)
    changed = with_attention(model, "elliptical")
    assert changed(images().bfloat16()).dtype is torch.bfloat16
    assert changed.blocks[0].attn.qkv.weight.dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet10t", {}, "has no row of blocks with attention"),
        ("vit_tiny_patch16_224", {"qk_norm": True}, r"block 0 of .* has more than softmax\(Q K\^T / sqrt\(d\)\) V"),
        ("eva02_tiny_patch14_224", {"depth": 1}, "has EvaAttention for attention; expected that of a plain"),
    ],
)
def test_other_attention_is_left_alone(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        with_attention(timm.create_model(name, **options), "rpc")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 3}, "layers is 3; expected indices from 0 to 2"),
        ({"queries": "kept"}, "queries is 'kept'; expected one of ignored, dropped"),
        ({"iterations": 0}, "iterations is 0"),
    ],
)
def test_values_that_cannot_be_used_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        with_attention(small(), "rpc", **options)


def test_unknown_names_and_elliptical_attention_in_timm_are_refused() -> None:
    with pytest.raises(UnknownName, match="no argument of attention rpc named 'iteration'"):
        with_attention(small(), "rpc", iteration=3)
    with pytest.raises(UnknownName, match="no attention named 'rpcs'"):
        with_attention(small(), "rpcs")
    with pytest.raises(BadValue, match="looks at the block before"):
        with_attention(small(), "elliptical")
    with pytest.raises(BadValue, match="takes no mask"):
        with_attention(small(), "rpc").blocks[0].attn(torch.randn(1, 3, 24), is_causal=True)


def test_without_a_choice_the_layers_are_the_mechanisms_own() -> None:
    changed = with_attention(small(), "rpc", queries="dropped")
    assert [isinstance(block.attn, RPCAttention) for block in changed.blocks] == [True, False, False]
