"""Attention against recorded outputs of the reference, values worked out by hand, and identities of the algorithm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from robustkpca.errors import BadValue
from robustkpca.models.attention import RPCAttention, SelfAttention, SoftmaxAttention, SymmetricAttention
from robustkpca.models.pursuit import (
    Pursuit,
    last_pass,
    passes,
    principal_component_pursuit_attention,
    soft_threshold,
    symmetric_attention,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "attention"
CASES: dict[str, Any] = json.loads((GOLDEN / "cases.json").read_text())
RPC_CASES = ("attn_rpc_small", "attn_rpc_small_defaultinit", "attn_rpc_deithead")


def heads_of_the_specification() -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and queries of the specification's numerical checks: two heads, four tokens, width 3, float64."""
    h, n, e = torch.meshgrid(*(torch.arange(size, dtype=torch.float64) for size in (2, 4, 3)), indexing="ij")
    keys = torch.sin(1 + 0.7 * h + 0.5 * n + 0.3 * e)
    values = torch.cos(0.2 + 0.4 * h + 0.6 * n + 0.5 * e)
    queries = torch.sin(0.3 + 0.2 * h + 0.9 * n - 0.4 * e)
    return keys[None], values[None], queries[None]


def random_heads(*, dtype: torch.dtype = torch.float64, batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    keys, values = torch.randn(2, batch, 3, 17, 16, generator=generator, dtype=torch.float64)
    return keys.to(dtype), values.to(dtype)


def naive_pursuit(
    keys: Tensor, values: Tensor, *, iterations: int, lambda_: float, paper: bool = False, share: float | None = None
) -> Tensor:
    """The algorithm written out once more: explicit matrices, explicit multiplier, sign and maximum."""
    heads, tokens, width = keys.shape[-3:]
    mu = tokens * (width if paper else heads * width) / 4 / keys.abs().sum((-1, -2), keepdim=True)
    level = lambda_ / mu if paper else lambda_ * mu
    low_rank = multiplier = torch.zeros_like(keys)
    for iteration in range(iterations):
        rest = keys - low_rank + multiplier / mu
        sparse = rest.sign() * (rest.abs() - level).clamp_min(0)
        if share is not None and iteration < iterations - 1:
            sparse = share * rest
        cleaned = keys - sparse - multiplier / mu
        low_rank = torch.softmax(cleaned @ cleaned.mT / width**0.5, -1) @ values
        multiplier = multiplier + mu * (keys - low_rank - sparse)
    return low_rank


def golden_layer(case: str, variant: str, tensors: dict[str, Tensor]) -> SelfAttention:
    """Build the layer of a recorded variant with the recorded weights."""
    dim, num_heads = CASES[case]["C"], CASES[case]["num_heads"]
    kwargs = CASES[case]["variants"][variant].get("kwargs", {})
    layer: SelfAttention
    if case == "attn_softmax_timm":
        layer = SoftmaxAttention(dim, num_heads)
    elif kwargs["robust"] and kwargs["layer"] <= 0:  # the layer was recorded as block 0; negative means every block
        layer = RPCAttention(dim, num_heads, Pursuit(kwargs["n"], kwargs["lambd"]))
    else:
        layer = SymmetricAttention(dim, num_heads)
    layer.load_state_dict({name.removeprefix("param."): t for name, t in tensors.items() if name.startswith("param.")})
    return layer.eval()


def relative(actual: Tensor, expected: Tensor) -> float:
    return ((actual - expected).norm() / expected.norm()).item()


GOLDEN_VARIANTS = [(case, variant) for case in (*RPC_CASES, "attn_softmax_timm") for variant in CASES[case]["variants"]]


@pytest.mark.parametrize(("case", "variant"), GOLDEN_VARIANTS)
def test_outputs_and_gradients_are_those_of_the_reference(case: str, variant: str) -> None:
    tensors = load_file(GOLDEN / f"{case}.safetensors")
    tolerance = CASES[case]["variants"][variant]
    layer = golden_layer(case, variant, tensors)
    tokens = tensors["x"].requires_grad_(True)
    output = layer(tokens)
    expected = tensors[f"{variant}.out"]
    assert (output - expected).abs().max() <= tolerance["suggested_atol_out"]
    assert relative(output, expected) <= tolerance["suggested_rel_l2_out"]
    (gradient,) = torch.autograd.grad(output.sum(), tokens, retain_graph=True)
    assert relative(gradient, tensors[f"{variant}.grad_x"]) <= tolerance["suggested_rel_l2_grad"]
    (gradient,) = torch.autograd.grad((output * tensors["cot"]).sum(), tokens)
    assert relative(gradient, tensors[f"{variant}.grad_x_cot"]) <= tolerance["suggested_rel_l2_grad"]


def test_every_pass_has_the_state_of_the_reference() -> None:
    tensors = load_file(GOLDEN / "attn_rpc_small.safetensors")
    layer = golden_layer("attn_rpc_small", "rpc_n4_lam4", tensors)
    states = list(passes(*layer.split(tensors["x"]), Pursuit(4, 4.0)))
    prefix = "rpc_n4_lam4.trace"
    torch.testing.assert_close(states[0].mu, tensors[f"{prefix}.mu"], rtol=1e-5, atol=1e-6)
    for index, state in enumerate(states):
        for letter, actual in (("S", state.sparse), ("L", state.low_rank), ("Y", state.multiplier())):
            assert relative(actual, tensors[f"{prefix}.iter{index}.{letter}"]) < 1e-5, (index, letter)


def test_the_fraction_of_sparse_entries_is_that_of_the_reference() -> None:
    tensors = load_file(GOLDEN / "attn_rpc_deithead.safetensors")
    layer = golden_layer("attn_rpc_deithead", "rpc_n6_lam4", tensors)
    fractions = [float((s.sparse != 0).float().mean()) for s in passes(*layer.split(tensors["x"]), Pursuit(6, 4.0))]
    expected = CASES["attn_rpc_deithead"]["variants"]["rpc_n6_lam4"]["s_nonzero_fraction_per_iter"]
    assert fractions == pytest.approx(expected, abs=2e-3)


PAPER = {"threshold": "lambda/mu", "mu_dim": "d"}
NUMBERS = [
    (Pursuit(1, 4.0), -1.10083318, (0.538833, 0.170356, -0.239830)),
    (Pursuit(2, 4.0), -4.04626725, (0.365683, -0.014491, -0.391117)),
    (Pursuit(6, 4.0), 3.55329581, (0.504594, 0.112019, -0.307982)),
    (Pursuit(1, 0.5), -3.35864774, (0.369159, -0.011448, -0.389252)),
    (Pursuit(2, 0.5), 0.19112517, (0.451319, 0.071172, -0.326401)),
    (Pursuit(6, 0.5), -1.63419067, (0.357809, -0.022861, -0.397935)),
    (Pursuit(1, 0.1, **PAPER), -3.71798204, None),
    (Pursuit(2, 0.1, **PAPER), -0.76550888, None),
    (Pursuit(6, 0.1, **PAPER), -3.12108036, None),
]


@pytest.mark.parametrize(("pursuit", "total", "first"), NUMBERS)
def test_the_pursuit_gives_the_numbers_of_the_specification(
    pursuit: Pursuit, total: float, first: tuple[float, ...] | None
) -> None:
    keys, values, _ = heads_of_the_specification()
    output = principal_component_pursuit_attention(keys, values, pursuit)
    assert output.sum().item() == pytest.approx(total, abs=1e-8)
    if first is not None:
        assert output[0, 0, 0].tolist() == pytest.approx(first, abs=1e-6)


def test_symmetric_attention_gives_the_numbers_of_the_specification() -> None:
    keys, values, _ = heads_of_the_specification()
    output = symmetric_attention(keys, values)
    assert output.sum().item() == pytest.approx(-1.10083318, abs=1e-8)
    assert output[0, 0, 0].tolist() == pytest.approx((0.538833, 0.170356, -0.239830), abs=1e-6)


def test_softmax_attention_gives_the_numbers_of_the_specification() -> None:
    keys, values, queries = heads_of_the_specification()
    layer = projecting(SoftmaxAttention(6, 2), queries, keys, values)
    output = layer.heads(torch.eye(4, 6, dtype=torch.float64)[None])
    assert output.sum().item() == pytest.approx(-0.56274351, abs=1e-8)
    assert output[0, 0, 0].tolist() == pytest.approx((0.304820, -0.081094, -0.447152), abs=1e-6)


@pytest.mark.parametrize(("mu_dim", "expected"), [("C", (0.68300570, 0.97785405)), ("d", (0.34150285, 0.48892703))])
def test_mu_gives_the_numbers_of_the_specification(mu_dim: str, expected: tuple[float, ...]) -> None:
    keys, values, _ = heads_of_the_specification()
    assert last_pass(keys, values, Pursuit(1, mu_dim=mu_dim)).mu.flatten().tolist() == pytest.approx(expected, abs=1e-8)


def projecting(layer: SelfAttention, *projections: Tensor) -> SelfAttention:
    """Set ``qkv`` so that unit-vector tokens are projected to the given ``(1, H, N, d)``."""
    weight = torch.zeros_like(layer.qkv.weight, dtype=torch.float64)
    for row, projection in enumerate(projections):
        flat = projection[0].transpose(0, 1).flatten(1)
        weight[row * flat.shape[1] : (row + 1) * flat.shape[1], : len(flat)] = flat.T
    layer.double().qkv.weight.data = weight
    nn.init.zeros_(layer.qkv.bias)
    return layer


@pytest.mark.parametrize("iterations", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("options", "written_out"),
    [
        ({}, {}),
        (PAPER, {"paper": True}),
        ({"variant": "rebuttal-all-layer"}, {"share": 1.0}),
        ({"variant": "rebuttal-layer", **PAPER}, {"paper": True, "share": 1.0}),
        ({"variant": "rebuttal-layer-half", **PAPER}, {"paper": True, "share": 0.5}),
    ],
)
def test_every_variant_is_the_algorithm_written_out(
    options: dict[str, str], written_out: dict[str, Any], iterations: int
) -> None:
    keys, values = random_heads()
    actual = principal_component_pursuit_attention(keys, values, Pursuit(iterations, 0.5, **options))
    expected = naive_pursuit(keys, values, iterations=iterations, lambda_=0.5, **written_out)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_the_clipping_variant_is_one_attention_over_clipped_keys() -> None:
    keys, values = random_heads()
    level = 4 * 0.3 * keys.abs().mean((-1, -2), keepdim=True)
    clipped = keys.clamp(-level, level)
    actual = principal_component_pursuit_attention(keys, values, Pursuit(1, 0.3, variant="rebuttal-clip", **PAPER))
    torch.testing.assert_close(actual, symmetric_attention(clipped, values), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_pass_that_clips_nothing_is_symmetric_attention_bit_for_bit(dtype: torch.dtype) -> None:
    keys, values = random_heads(dtype=dtype)
    output = principal_component_pursuit_attention(keys, values, Pursuit(1, 1e4))
    assert torch.equal(output, symmetric_attention(keys, values))


def test_mu_falls_as_the_keys_grow() -> None:
    keys, values = random_heads()
    once, thrice = (last_pass(factor * keys, values, Pursuit(1)).mu for factor in (1, 3))
    torch.testing.assert_close(thrice, once / 3)


def test_mu_is_a_quarter_of_the_number_of_heads_over_the_mean_key() -> None:
    keys, values = random_heads()
    torch.testing.assert_close(
        last_pass(keys, values, Pursuit(1)).mu, 3 / (4 * keys.abs().mean((-1, -2), keepdim=True))
    )


def test_the_second_pass_attends_over_what_the_first_left() -> None:
    keys, values = random_heads()
    first, second = passes(keys, values, Pursuit(2))
    torch.testing.assert_close(second.cleaned, first.low_rank + first.sparse - second.sparse)


def test_an_image_does_not_depend_on_its_batch() -> None:
    keys, values = random_heads(batch=3)
    together = principal_component_pursuit_attention(keys, values, Pursuit(4))
    alone = principal_component_pursuit_attention(keys[1:2], values[1:2], Pursuit(4))
    torch.testing.assert_close(together[1:2], alone, rtol=0, atol=1e-12)


def test_the_inputs_are_left_as_they_were() -> None:
    keys, values = random_heads()
    before = keys.clone(), values.clone()
    principal_component_pursuit_attention(keys, values, Pursuit(3))
    assert torch.equal(keys, before[0])
    assert torch.equal(values, before[1])


def test_gradients_agree_with_finite_differences() -> None:
    keys, values, _ = heads_of_the_specification()
    keys, values = keys.requires_grad_(True), values.requires_grad_(True)
    assert torch.autograd.gradcheck(
        lambda k, v: principal_component_pursuit_attention(k, v, Pursuit(3, 0.5)), (keys, values), fast_mode=True
    )


def test_gradients_are_the_same_twice_and_through_functional_transforms() -> None:
    keys, values = random_heads()

    def total(given: Tensor) -> Tensor:
        return principal_component_pursuit_attention(given, values, Pursuit(4, 0.5)).square().sum()

    leaf = keys.clone().requires_grad_(True)
    output = total(leaf)
    (once,) = torch.autograd.grad(output, leaf, retain_graph=True)
    (twice,) = torch.autograd.grad(output, leaf)
    assert torch.equal(once, twice)
    torch.testing.assert_close(torch.func.grad(total)(keys), once, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"variant": "rebuttal-layer-half", **PAPER}])
def test_gradients_are_those_of_the_algorithm_written_out(options: dict[str, Any]) -> None:
    keys, values = random_heads()
    written_out = {"paper": True, "share": 0.5} if options else {}
    gradients = []
    for run in (
        lambda k, v: principal_component_pursuit_attention(k, v, Pursuit(5, 0.5, **options)),
        lambda k, v: naive_pursuit(k, v, iterations=5, lambda_=0.5, **written_out),
    ):
        leaves = keys.clone().requires_grad_(True), values.clone().requires_grad_(True)
        weights = torch.linspace(-1, 1, keys.numel(), dtype=keys.dtype).view_as(keys)
        gradients.append(torch.autograd.grad((run(*leaves) * weights).sum(), leaves))
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("threshold", ["lambda*mu", "lambda/mu"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_keys_of_zero_give_the_limit_and_finite_gradients(threshold: str, dtype: torch.dtype) -> None:
    _, values = random_heads(dtype=dtype)
    keys = torch.zeros_like(values, requires_grad=True)
    state = last_pass(keys, values, Pursuit(1, threshold=threshold))
    torch.testing.assert_close(state.low_rank.to(dtype), values.mean(-2, keepdim=True).expand_as(values))
    output = principal_component_pursuit_attention(keys, values, Pursuit(4, threshold=threshold))
    output.sum().backward()
    assert output.isfinite().all()
    assert keys.grad is not None
    assert keys.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", [SoftmaxAttention, SymmetricAttention, RPCAttention])
def test_other_precisions_stay_near_single_precision(kind: type[SelfAttention], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = kind(48, 3)
    tokens = torch.randn(2, 17, 48)
    single = layer(tokens)
    other = layer.to(dtype)(tokens.to(dtype))
    assert other.dtype is dtype
    assert relative(other.float(), single) < 0.05


def test_half_precision_keeps_the_state_in_single_precision() -> None:
    keys, values = random_heads(dtype=torch.float16)
    state = last_pass(keys, values, Pursuit(2))
    assert {t.dtype for t in (state.mu, state.sparse, state.low_rank, state.multiplier())} == {torch.float32}


@pytest.mark.parametrize("kind", [SoftmaxAttention, SymmetricAttention, RPCAttention])
def test_the_attention_map_is_what_the_heads_applied(kind: type[SelfAttention]) -> None:
    torch.manual_seed(0)
    layer = kind(48, 3).double()
    tokens = torch.randn(2, 17, 48, dtype=torch.float64)
    weights = layer.attention_map(tokens)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 17, dtype=torch.float64))
    torch.testing.assert_close(weights @ layer.split(tokens)[-1], layer.heads(tokens))


def test_ignored_queries_do_not_change_the_output() -> None:
    torch.manual_seed(0)
    with_queries = RPCAttention(48, 3, Pursuit(4, 1.0), projections=3)
    without = RPCAttention(48, 3, Pursuit(4, 1.0))
    state = with_queries.state_dict()
    without.load_state_dict({n: t[48:] if n.startswith("qkv") else t for n, t in state.items()})
    tokens = torch.randn(2, 17, 48)
    torch.testing.assert_close(with_queries(tokens), without(tokens))


class Shapes(TorchDispatchMode):
    """Records the shape of everything that an operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = function(*args, **(kwargs or {}))
        for result in results if isinstance(results, tuple | list) else (results,):
            if isinstance(result, Tensor):
                self.seen.add(tuple(result.shape))
        return results


@pytest.mark.parametrize("kind", [SoftmaxAttention, SymmetricAttention, RPCAttention])
@pytest.mark.parametrize("with_gradient", [False, True])
def test_no_matrix_of_all_pairs_of_tokens_is_formed(kind: type[SelfAttention], with_gradient: bool) -> None:
    layer = kind(48, 3).eval()
    tokens = torch.randn(2, 61, 48, requires_grad=with_gradient)
    with Shapes() as shapes, torch.set_grad_enabled(with_gradient):
        output = layer(tokens)
        if with_gradient:
            output.sum().backward()
    assert (2, 61, 48) in shapes.seen
    assert not [shape for shape in shapes.seen if shape.count(61) > 1]


def test_soft_thresholding_moves_towards_zero_and_stops_there() -> None:
    shrunk = soft_threshold(torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 2.0]), torch.tensor(1.0))
    assert shrunk.tolist() == [-2.0, 0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations is 0"),
        ({"iterations": 1.5}, "iterations is 1.5"),
        ({"lambda_": -1.0}, "lambda_ is -1.0"),
        ({"lambda_": float("nan")}, "lambda_ is nan"),
        ({"threshold": "mu"}, r"threshold is 'mu'; expected one of lambda\*mu, lambda/mu"),
        ({"mu_dim": "H"}, "mu_dim is 'H'; expected one of C, d"),
        ({"variant": "best"}, "variant is 'best'; expected one of released"),
        ({"variant": "rebuttal-layer"}, "write threshold=lambda/mu,mu_dim=d"),
        ({"variant": "rebuttal-clip", **PAPER}, "write iterations=1"),
    ],
)
def test_a_pursuit_refuses_what_it_cannot_run(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        Pursuit(**options)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(BadValue, match="embed_dim 48 is not a multiple of num_heads 5"):
        SymmetricAttention(48, 5)
