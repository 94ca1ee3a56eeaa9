"""Every attention by name: recorded outputs of the references, values worked out by hand, and the algorithms written out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import load_file
from scipy.optimize import minimize
from torch import Tensor, nn

from robustkpca.calls import Call, complete
from robustkpca.errors import BadValue, UnknownName
from robustkpca.models import create_model, vit
from robustkpca.models.attention import Carried, RPCAttention, SelfAttention, SoftmaxAttention, SymmetricAttention
from robustkpca.models.elliptical_attention import EllipticalAttention, relative_movement
from robustkpca.models.kde_attention import KDEAttention, RKDEAttention, gram_matrix, robust_weights
from robustkpca.models.mechanisms import ATTENTIONS, attention_blocks, attention_options
from robustkpca.models.mom_attention import MoMAttention, median_set
from robustkpca.models.pursuit import Pursuit
from robustkpca.models.rvt_attention import RVTAttention
from robustkpca.models.scaled_attention import ScaledAttention
from robustkpca.models.simplex_program import simplex_minimiser
from robustkpca.models.spkde_attention import SPKDEAttention
from tests.models.test_attention import Shapes, heads_of_the_specification, projecting, relative

GOLDEN = Path(__file__).parent.parent / "golden" / "attention"
CASES: dict[str, Any] = json.loads((GOLDEN / "cases.json").read_text())

RECORDED: list[tuple[str, str, type[SelfAttention], dict[str, Any]]] = [
    ("attn_scaled_S", "scaled", ScaledAttention, {"form": "S", "tokens": 17}),
    ("attn_scaled_S", "scaled_s0", ScaledAttention, {"form": "S", "tokens": 17}),
    ("attn_scaled_alpha", "scaled", ScaledAttention, {"form": "alpha"}),
    ("attn_scaled_alpha", "scaled_s0", ScaledAttention, {"form": "alpha"}),
    ("attn_kde_variants", "kde", KDEAttention, {}),
    ("attn_kde_variants", "rkde_huber_n1", RKDEAttention, {"loss": "huber"}),
    ("attn_kde_variants", "rkde_huber_n3", RKDEAttention, {"loss": "huber", "iterations": 3}),
    ("attn_kde_variants", "rkde_hampel_n1", RKDEAttention, {"loss": "hampel"}),
    ("attn_kde_variants", "rkde_hampel_n2", RKDEAttention, {"loss": "hampel", "iterations": 2}),
    ("attn_kde_variants", "rkde_huber_n2_ha1.2", RKDEAttention, {"loss": "huber", "iterations": 2, "a": 1.2}),
    ("attn_kde_variants", "rkde_hampel_n2_ha0.6", RKDEAttention, {"loss": "hampel", "iterations": 2, "a": 0.6}),
    ("attn_kde_variants", "spkde", SPKDEAttention, {"outliers": 0.05, "shared": "batch"}),
    ("attn_kde_variants", "mom_k3", MoMAttention, {"blocks": 3, "chosen_by": "batch"}),
    ("attn_kde_variants", "mom_auto", MoMAttention, {"blocks": "auto", "chosen_by": "batch"}),
    ("attn_elliptical", "elliptical_mean", EllipticalAttention, {"statistic": "mean"}),
    ("attn_elliptical", "elliptical_median", EllipticalAttention, {"statistic": "median"}),
    ("attn_elliptical", "plain", EllipticalAttention, {}),
    ("attn_segmenter_rpc", "rpc_layer0", RPCAttention, {"pursuit": Pursuit(6, 4.0)}),
    ("attn_segmenter_rpc", "sym_layer1", SymmetricAttention, {}),
]


def test_every_recorded_variant_is_in_the_table() -> None:
    cases = {case for case, *_ in RECORDED}
    expected = {(case, variant) for case in cases for variant in CASES[case]["variants"]}
    assert {(case, variant) for case, variant, *_ in RECORDED} == expected


@pytest.mark.parametrize(("case", "variant", "kind", "options"), RECORDED)
def test_outputs_and_gradients_are_those_of_the_reference(
    case: str, variant: str, kind: type[SelfAttention], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, tolerance = load_file(GOLDEN / f"{case}.safetensors"), CASES[case]["variants"][variant]
    layer = kind(CASES[case]["C"], CASES[case]["num_heads"], **options).eval()
    weights = {name.removeprefix("param."): t for name, t in tensors.items() if name.startswith("param.")}
    if variant == "scaled_s0":
        weights["s"] = torch.zeros_like(weights["s"])
    layer.load_state_dict(weights, strict=True)
    if f"{variant}.block_indices" in tensors:
        sets = tensors[f"{variant}.block_indices"]
        assert sets.shape == layer.draw(CASES[case]["N"]).shape  # type: ignore[operator]
        monkeypatch.setattr(layer, "draw", lambda tokens: sets)
    tokens = tensors["x"].requires_grad_(True)
    carried = Carried(tensors["v_last"]) if variant.startswith("elliptical") else None
    output = layer(tokens, carried)
    expected = tensors[f"{variant}.out"]
    assert (output - expected).abs().max() <= tolerance["suggested_atol_out"]
    assert relative(output, expected) <= tolerance["suggested_rel_l2_out"]
    for cotangent, name in ((torch.ones_like(output), "grad_x"), (tensors["cot"], "grad_x_cot")):
        (gradient,) = torch.autograd.grad(output, tokens, cotangent, retain_graph=True)
        assert relative(gradient, tensors[f"{variant}.{name}"]) <= tolerance["suggested_rel_l2_grad"]


def test_spkde_weights_are_those_of_the_reference() -> None:
    tensors = load_file(GOLDEN / "attn_kde_variants.safetensors")
    layer = SPKDEAttention(48, 3, outliers=0.05, shared="batch")
    layer.load_state_dict({name.removeprefix("param."): t for name, t in tensors.items() if name.startswith("param.")})
    _, keys, values = layer.split(tensors["x"])
    keys = nn.functional.normalize(keys, dim=-1)
    for points, name in ((keys, "marginal"), (torch.cat([keys, values], -1), "joint")):
        weights = layer.log_weights(points, 16**-0.5)[0, 0].exp()
        torch.testing.assert_close(weights, tensors[f"spkde.log_weights_{name}"].exp(), rtol=1e-4, atol=1e-6)


def test_the_movement_of_values_is_that_of_the_reference() -> None:
    tensors = load_file(GOLDEN / "attn_elliptical.safetensors")
    layer = EllipticalAttention(48, 3)
    layer.load_state_dict({name.removeprefix("param."): t for name, t in tensors.items() if name.startswith("param.")})
    values = layer.split(tensors["x"])[2]
    for statistic in ("mean", "median"):
        moved = relative_movement(values, tensors["v_last"], statistic)[:, :, 0]
        torch.testing.assert_close(moved, tensors[f"elliptical_{statistic}.W_diag"], rtol=1e-5, atol=1e-6)


NUMBERS: list[tuple[type[SelfAttention], dict[str, Any], float, tuple[float, ...]]] = [
    (ScaledAttention, {"form": "alpha"}, -0.48456167, (0.159260, -0.114500, -0.360226)),
    (ScaledAttention, {"form": "S", "tokens": 4}, -0.60920685, (0.299007, -0.082549, -0.443893)),
    (KDEAttention, {}, -1.28334551, (0.267254, -0.119471, -0.476946)),
    (RKDEAttention, {"loss": "huber"}, -1.28856862, (0.264240, -0.121477, -0.477451)),
    (RKDEAttention, {"loss": "huber", "iterations": 2}, -1.28547334, (0.264550, -0.121145, -0.477180)),
    (RKDEAttention, {"loss": "hampel"}, -1.28334551, (0.267254, -0.119471, -0.476946)),
    (EllipticalAttention, {}, -1.69116525, (0.330996, -0.053029, -0.424071)),
]


@pytest.mark.parametrize(("kind", "options", "total", "first"), NUMBERS)
def test_mechanisms_give_the_numbers_of_the_specification(
    kind: type[SelfAttention], options: dict[str, Any], total: float, first: tuple[float, ...]
) -> None:
    keys, values, queries = heads_of_the_specification()
    layer = projecting(kind(6, 2, **options), queries, keys, values)
    if options.get("form") == "alpha":
        nn.init.constant_(layer.s, 0.3)
    elif options.get("form") == "S":
        h, n, m = torch.meshgrid(torch.arange(2.0), torch.arange(4.0), torch.arange(4.0), indexing="ij")
        layer.s.data = 0.1 * torch.sin((h + n + 2 * m).double())
    h, n, e = torch.meshgrid(*(torch.arange(size, dtype=torch.float64) for size in (2, 4, 3)), indexing="ij")
    before = torch.cos(0.1 + 0.3 * h + 0.2 * n + 0.9 * e)[None]
    output = layer.attend(layer.split(torch.eye(4, 6, dtype=torch.float64)[None]), before)
    assert output.sum().item() == pytest.approx(total, abs=1e-8)
    assert output[0, 0, 0].tolist() == pytest.approx(first, abs=1e-6)


def random_parts(batch: int = 3, tokens: int = 17) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    queries, keys, values = torch.randn(3, batch, 3, tokens, 16, generator=generator, dtype=torch.float64).unbind()
    return queries, keys, values


def weighted(queries: Tensor, keys: Tensor, values: Tensor, joint: Tensor, marginal: Tensor) -> Tensor:
    """The regression with explicit matrices and weights that are not in the logarithm."""
    kernel = torch.exp(-(keys.shape[-1] ** -0.5) * torch.cdist(queries, keys).square())
    above = kernel * joint[..., None, :]
    return (above / (kernel * marginal[..., None, :]).sum(-1, keepdim=True)) @ values


def textbook_weights(points: Tensor, loss: str, a: float, iterations: int) -> Tensor:
    """Iteratively reweighted kernel means, from distances in feature space computed one by one."""
    gram = torch.exp(-(16**-0.5) * torch.cdist(points, points).square())
    weights = torch.full(points.shape[:-1], 1 / points.shape[-2], dtype=points.dtype)
    for _ in range(iterations):
        distances = torch.zeros_like(weights)
        for index in range(points.shape[-2]):
            offset = -weights
            offset = offset.index_add(-1, torch.tensor([index]), torch.ones_like(weights[..., :1]))
            distances[..., index] = torch.einsum("...j,...jl,...l->...", offset, gram, offset).clamp_min(0).sqrt()
        for place in numpy.ndindex(*distances.shape):
            distance = float(distances[place])
            if distance < a:
                share = 1.0
            elif loss == "huber" or distance < 2 * a:
                share = a / distance
            else:
                share = a * (3 * a - distance) / (a * distance) if distance < 3 * a else 0.0
            weights[place] = share
        weights = weights / weights.sum(-1, keepdim=True)
    return weights


@pytest.mark.parametrize(("loss", "a"), [("huber", 0.2), ("huber", 0.8), ("hampel", 0.45), ("hampel", 0.8)])
@pytest.mark.parametrize("iterations", [1, 3])
def test_textbook_weights_are_those_written_out(loss: str, a: float, iterations: int) -> None:
    queries, keys, values = random_parts(tokens=9)
    layer = RKDEAttention(48, 3, loss=loss, a=a, iterations=iterations, form="textbook")
    keys = nn.functional.normalize(keys, dim=-1)
    joint, marginal = (textbook_weights(x, loss, a, iterations) for x in (torch.cat([keys, values], -1), keys))
    expected = weighted(queries, keys, values, joint, marginal)
    torch.testing.assert_close(layer.attend((queries, keys, values)), expected, rtol=1e-7, atol=1e-8)


def test_textbook_weights_lower_an_outlier_where_the_released_ones_cannot() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(1, 1, 30, 4, generator=generator, dtype=torch.float64) * 0.1
    points[0, 0, 0] = 3.0
    gram = gram_matrix(points, 0.5)
    textbook, released = (
        robust_weights(gram, loss="hampel", iterations=2, a=0.2, form=form).exp()[0, 0]
        for form in ("textbook", "released")
    )
    assert textbook[0] < 1e-12
    torch.testing.assert_close(released, torch.full((30,), 1 / 30, dtype=torch.float64))


def test_weights_are_equal_where_every_point_is_beyond_the_last_corner() -> None:
    gram = torch.eye(5, dtype=torch.float64)[None, None]
    weights = robust_weights(gram, loss="hampel", iterations=1, a=0.1, form="textbook").exp()
    torch.testing.assert_close(weights, torch.full_like(weights, 0.2))


def general_solution(matrix: Any, vector: Any) -> Any:
    found = minimize(
        lambda w: (w @ matrix @ w / 2 - vector @ w, matrix @ w - vector),
        numpy.full(len(vector), 1 / len(vector)),
        jac=True,
        bounds=[(0, 1)] * len(vector),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return found.x


def test_the_simplex_program_is_solved_as_a_general_solver_does() -> None:
    generator = torch.Generator().manual_seed(1)
    for outliers in (0.0, 0.3, 0.9):
        points = torch.randn(12, 3, generator=generator, dtype=torch.float64)
        gram = gram_matrix(points, 0.5)
        vector = gram.mean(-1) / (1 - outliers) + 0.2 * torch.randn(12, generator=generator, dtype=torch.float64)
        ours = simplex_minimiser(gram, vector)
        theirs = general_solution(gram.numpy(), vector.numpy())
        assert ours.min() >= 0
        assert ours.sum().item() == pytest.approx(1.0, abs=1e-12)
        assert (ours == 0).any() or outliers == 0.0
        assert ours.numpy() == pytest.approx(theirs, abs=1e-5)


def test_equal_points_share_their_weight() -> None:
    gram = gram_matrix(torch.tensor([[0.0], [0.0], [1.0]], dtype=torch.float64), 1.0)
    weights = simplex_minimiser(gram, gram.mean(-1))
    assert weights.sum().item() == pytest.approx(1.0)
    assert weights[0].item() == pytest.approx(weights[1].item(), abs=1e-5)


def test_the_density_of_a_set_is_the_sum_of_its_log_kernels() -> None:
    queries, keys, _ = random_parts()
    layer = MoMAttention(48, 3, blocks=7)
    sets = layer.eval().draw(17)
    logs = -torch.cdist(queries, keys).square().sum((1, 2))  # over heads and queries
    for whole in (False, True):
        scores = torch.stack([logs[:, one].sum(-1) for one in sets], dim=-1)
        scores = scores.sum(0, keepdim=True).expand_as(scores) if whole else scores
        expected = sets[scores.argsort(dim=-1)[:, 3]]
        assert torch.equal(median_set(queries, keys, sets, whole_batch=whole), expected)


def test_sets_are_fixed_in_evaluation_and_drawn_anew_in_training() -> None:
    layer = MoMAttention(48, 3)
    assert not torch.equal(layer.train().draw(50), layer.draw(50))
    state = torch.get_rng_state()
    assert torch.equal(layer.eval().draw(50), layer.draw(50))
    assert torch.equal(torch.get_rng_state(), state)
    fresh = MoMAttention(48, 3, sets="fresh").eval()
    assert not torch.equal(fresh.draw(50), fresh.draw(50))
    assert (layer.draw(50).diff(dim=-1) > 0).all()


def test_rvt_attention_is_softmax_over_masked_logits() -> None:
    queries, keys, values = random_parts()
    layer = RVTAttention(48, 3, tokens=17).double()
    nn.init.normal_(layer.att_mask)
    unit = keys / keys.norm(dim=-1, keepdim=True)
    logits = torch.einsum("bhid,bhjd->bhij", queries, unit) / 4 / (1 + (-layer.att_mask).exp())
    expected = torch.einsum("bhij,bhjd->bhid", logits.exp() / logits.exp().sum(-1, keepdim=True), values)
    torch.testing.assert_close(layer.attend((queries, keys, values)), expected)


def test_values_that_stay_leave_attention_as_it_is() -> None:
    queries, keys, values = random_parts()
    elliptical, plain = EllipticalAttention(48, 3), SoftmaxAttention(48, 3)
    parts = (queries, keys, values)
    assert torch.equal(elliptical.attend(parts, values), plain.attend(parts))
    assert torch.equal(elliptical.attend(parts), plain.attend(parts))


SHAPE: dict[str, Any] = {
    "img_size": 8,
    "patch_size": 2,
    "in_chans": 1,
    "num_classes": 10,
    "embed_dim": 24,
    "depth": 3,
    "num_heads": 3,
}


@pytest.mark.parametrize("name", sorted(ATTENTIONS))
def test_any_transformer_takes_any_attention_by_name(name: str) -> None:
    model = create_model(f"vit_tiny(attention={name})", **SHAPE).eval()
    kind = ATTENTIONS[name].load()
    found = [type(block.attn) is kind for block in model.blocks]
    assert found == ([True, False, False] if name == "rpc" else [True] * 3)
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    logits = model(images)
    assert logits.shape == (4, 10)
    assert logits.isfinite().all()
    assert create_model(model.canonical_name).canonical_name == model.canonical_name


@pytest.mark.parametrize("name", sorted(ATTENTIONS))
def test_an_image_does_not_depend_on_its_batch(name: str) -> None:
    model = create_model(f"vit_tiny(attention={name})", **SHAPE).eval().double()
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(images)[1:2], model(images[1:2]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(ATTENTIONS))
def test_every_mechanism_carries_a_gradient_to_its_weights(name: str) -> None:
    model = create_model(
        f"vit_tiny(attention={name},layers=all)" if name == "rpc" else f"vit_tiny(attention={name})", **SHAPE
    )
    for parameter in model.parameters():
        if parameter.ndim == 3 or parameter.shape == (1,):
            nn.init.constant_(parameter, 0.1)
    model(torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    silent = [
        n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all() or not p.grad.any()
    ]
    assert silent == []


PAIRS = {"rkde", "spkde", "rvt"}
"""Mechanisms that form a matrix of all pairs of tokens."""


@pytest.mark.parametrize("name", sorted(ATTENTIONS))
def test_only_these_form_a_matrix_of_all_pairs(name: str) -> None:
    (make,) = attention_blocks(name, 1, {"form": "alpha"} if name == "scaled" else {})
    layer = make(48, 3, True, 61).eval()
    tokens = torch.randn(2, 61, 48, requires_grad=True)
    with Shapes() as shapes:
        layer(tokens, Carried(torch.randn(2, 3, 61, 16))).sum().backward()
    assert any(shape.count(61) > 1 for shape in shapes.seen) == (name in PAIRS)


def test_options_depend_on_the_attention() -> None:
    rkde = complete(Call.parse("vit_tiny(attention=rkde,a=1)"), vit.vit_tiny, "model").arguments
    assert (rkde["a"], rkde["loss"], rkde["layers"]) == (1.0, "huber", "all")
    assert "iterations" not in complete(Call.parse("vit_tiny"), vit.vit_tiny, "model").arguments
    with pytest.raises(UnknownName, match="no argument of model vit_tiny named 'lambda_'"):
        complete(Call.parse("vit_tiny(attention=kde,lambda_=3)"), vit.vit_tiny, "model")
    with pytest.raises(UnknownName, match=r"no attention named 'kd'\. Did you mean 'kde'"):
        create_model("vit_tiny(attention=kd)")


def test_a_name_of_its_own_is_the_same_network() -> None:
    for name, text in {
        "softmax_vit_tiny": "vit_tiny",
        "symvit_tiny": "vit_tiny(attention=symmetric)",
        "rpc_symvit_tiny": "vit_tiny(attention=rpc)",
        "scaled_vit_tiny": "vit_tiny(attention=scaled)",
    }.items():
        one, other = create_model(name, **SHAPE), create_model(text, **SHAPE)
        assert one.state_dict().keys() == other.state_dict().keys()
        images = torch.rand(2, 1, 8, 8)
        assert torch.equal(one(images), other(images))


def test_every_mechanism_names_its_options_once() -> None:
    structure = set(complete(Call.parse("vit_tiny"), vit.vit_tiny, "model").arguments)
    for name in ATTENTIONS:
        assert not structure & attention_options(name).keys(), name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attention=scaled,form=T", "form is 'T'; expected one of S, alpha"),
        ("attention=rkde,loss=l2", "loss is 'l2'; expected one of huber, hampel"),
        ("attention=rkde,form=paper", "form is 'paper'; expected one of released, textbook"),
        ("attention=rkde,iterations=0", "iterations is 0"),
        ("attention=rkde,a=0", "a is 0.0; expected a number above 0"),
        ("attention=spkde,outliers=1", r"outliers is 1.0; expected a share in \[0, 1\)"),
        ("attention=spkde,shared=head", "shared is 'head'"),
        ("attention=mom,blocks=0", "blocks is 0"),
        ("attention=mom,blocks=many", "blocks is 'many'"),
        ("attention=mom,sets=random", "sets is 'random'; expected one of fixed, fresh"),
        ("attention=elliptical,statistic=mode", "statistic is 'mode'; expected one of mean, median"),
        ("attention=kde,others=symmetric", "others is 'symmetric'; expected softmax beside kde attention"),
        ("attention=kde,layers=3", "layers is 3; expected indices from 0 to 2"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_in_one_line(text: str, message: str) -> None:
    with pytest.raises(BadValue, match=message) as error:
        create_model(f"vit_tiny({text})", **SHAPE)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("form", "extra", "parameters"), [("S", (3, 197, 197), 7_114_540), ("alpha", (1,), 5_717_428)])
def test_scaled_transformers_have_the_published_size_and_keys(
    form: str, extra: tuple[int, ...], parameters: int
) -> None:
    with torch.device("meta"):
        model, plain = vit.scaled_vit_tiny(form=form), vit.softmax_vit_tiny()
    state = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert len(state) == 164
    assert state == {
        **{key: tuple(value.shape) for key, value in plain.state_dict().items()},
        **{f"blocks.{index}.attn.s": extra for index in range(12)},
    }


@pytest.mark.parametrize("form", ["S", "alpha"])
def test_a_whole_scaled_transformer_is_that_of_the_reference(form: str) -> None:
    case = CASES[f"vit_scaled_{form}_io"]
    model = vit.scaled_vit_tiny(form=form, **case["ctor"]).eval()
    model.load_state_dict(load_file(GOLDEN / case["state_dict"]), strict=True)
    tensors, tolerance = load_file(GOLDEN / f"vit_scaled_{form}_io.safetensors"), case["variants"]["scaled"]
    images = tensors["x"].requires_grad_(True)
    logits = model(images)
    assert (logits - tensors["scaled.out"]).abs().max() <= tolerance["suggested_atol_out"]
    for cotangent, name in ((torch.ones_like(logits), "grad_x"), (tensors["cot"], "grad_x_cot")):
        (gradient,) = torch.autograd.grad(logits, images, cotangent, retain_graph=True)
        assert relative(gradient, tensors[f"scaled.{name}"]) <= tolerance["suggested_rel_l2_grad"]


def test_kernel_density_transformers_have_the_keys_of_the_softmax_one() -> None:
    with torch.device("meta"):
        expected = {key: value.shape for key, value in vit.softmax_vit_tiny().state_dict().items()}
        for name in ("kde", "rkde", "spkde", "mom", "elliptical"):
            model = vit.vit_tiny(attention=name)
            assert {key: value.shape for key, value in model.state_dict().items()} == expected


def test_elliptical_blocks_see_the_values_of_the_block_before() -> None:
    model = create_model("vit_tiny(attention=elliptical,layers=2)", **SHAPE).eval().double()
    plain = create_model("softmax_vit_tiny", **SHAPE).eval().double()
    plain.load_state_dict(model.state_dict())
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(model(images), plain(images))
    for block in (model.blocks, plain.blocks):
        block[1].attn.qkv.load_state_dict(block[2].attn.qkv.state_dict())
        block[1].norm1.load_state_dict(block[2].norm1.state_dict())
        nn.init.zeros_(block[1].attn.proj.weight), nn.init.zeros_(block[1].attn.proj.bias)
        nn.init.zeros_(block[1].mlp.fc2.weight), nn.init.zeros_(block[1].mlp.fc2.bias)
    torch.testing.assert_close(model(images), plain(images))  # no value moved


def test_the_number_of_auto_blocks_follows_the_outliers() -> None:
    assert MoMAttention(48, 3, blocks="auto", outliers=0.1).draw(197).shape == (math.floor(39.4) + 1, 177)
