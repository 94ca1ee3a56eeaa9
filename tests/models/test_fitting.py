"""Whether weights fit a network, and what is said when they do not."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from robustkpca.errors import Unusable
from robustkpca.models.fitting import finite, fitted


def misfit(network: nn.Module, state: dict[str, Tensor]) -> str:
    """Return the message of the refusal, which must be one line."""
    with pytest.raises(Unusable) as caught:
        fitted(network, state, name="small", origin="checkpoint weights.pth")
    message = str(caught.value)
    assert message.startswith("checkpoint weights.pth: ")
    assert message.isprintable()
    return message


def fit(network: nn.Module, state: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    return fitted(network, state, name="small", origin="checkpoint weights.pth")


def state_of(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def attention(projections: int, width: int = 4) -> nn.Module:
    return nn.ModuleDict({"attn": nn.ModuleDict({"qkv": nn.Linear(width, projections * width)})})


def test_missing_weights_are_counted_and_named() -> None:
    network = nn.Sequential(*(nn.Linear(1, 1) for _ in range(4)))
    state = {name: value for name, value in state_of(network).items() if name == "0.weight"}
    assert "7 weights of small are missing: 0.bias, 1.weight, 1.bias, 2.weight, 2.bias and 2 more" in misfit(
        network, state
    )


def test_weights_without_a_place_are_counted_and_named() -> None:
    message = misfit(nn.Linear(1, 1), state_of(nn.Linear(1, 1)) | {"extra.weight": torch.ones(1)})
    assert "1 weights have no place in small: extra.weight. Is the model right?" in message


def test_shapes_that_differ_are_named_with_both() -> None:
    message = misfit(nn.Linear(3, 2), {"weight": torch.ones(2, 5), "bias": torch.ones(2)})
    assert "1 weights have another shape in small: weight is (2, 5) instead of (2, 3)" in message


@pytest.mark.parametrize("head", ["head", "fc", "classifier"])
def test_another_number_of_classes_says_which_to_ask_for(head: str) -> None:
    network = nn.ModuleDict({"body": nn.Linear(3, 3), head: nn.Linear(3, 10)})
    state = state_of(nn.ModuleDict({"body": nn.Linear(3, 3), head: nn.Linear(3, 1000)}))
    assert misfit(network, state) == "checkpoint weights.pth: has 1000 classes, small has 10: use num_classes=1000"


def test_another_width_is_not_mistaken_for_another_number_of_classes() -> None:
    message = misfit(nn.ModuleDict({"head": nn.Linear(3, 10)}), state_of(nn.ModuleDict({"head": nn.Linear(4, 1000)})))
    assert "2 weights have another shape" in message


def test_softmax_weights_in_a_symmetric_model_are_named_so() -> None:
    assert "holds query, key and value (softmax attention), but small has one projection" in misfit(
        attention(2), state_of(attention(3))
    )


def test_symmetric_weights_in_a_softmax_model_are_named_so() -> None:
    assert "holds one projection for query and key (SymViT), but small wants" in misfit(
        attention(3), state_of(attention(2))
    )


def test_weights_of_another_kind_of_number_are_refused() -> None:
    state = {"weight": torch.ones(1, 1, dtype=torch.int8), "bias": torch.ones(1)}
    assert "weight is torch.int8, but small wants torch.float32" in misfit(nn.Linear(1, 1), state)


def test_numbers_too_large_for_the_precision_are_refused() -> None:
    state = {"weight": torch.full((1, 1), 1e6), "bias": torch.ones(1)}
    assert "weight holds numbers too large for torch.float16" in misfit(nn.Linear(1, 1).half(), state)


def test_a_missing_step_counter_of_batch_normalisation_is_tolerated() -> None:
    network = nn.BatchNorm2d(2)
    state = {name: value for name, value in state_of(network).items() if name != "num_batches_tracked"}
    weights, remarks = fit(network, state)
    assert set(weights) == set(state)
    assert remarks == []


def test_missing_running_statistics_are_not_tolerated() -> None:
    network = nn.BatchNorm2d(2)
    state = {name: value for name, value in state_of(network).items() if "running" not in name}
    assert "running_mean, running_var" in misfit(network, state)


class Tied(nn.Module):
    """Two names, one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(2, 3, bias=False)
        self.output = nn.Linear(2, 3, bias=False)
        self.output.weight = self.embedding.weight


@pytest.mark.parametrize("kept", ["embedding.weight", "output.weight"])
def test_one_of_two_tied_weights_is_enough(kept: str) -> None:
    weights, _ = fit(Tied(), {kept: torch.ones(3, 2)})
    assert set(weights) == {kept}


def test_tied_weights_that_differ_are_refused() -> None:
    state = {"embedding.weight": torch.ones(3, 2), "output.weight": torch.zeros(3, 2)}
    assert "embedding.weight, output.weight differ, but are one tensor" in misfit(Tied(), state)


class PatchGrid(nn.Module):
    """Tells its grid as timm's patch embedding does."""

    def __init__(self, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid_size = grid


class Positions(nn.Module):
    """Holds a position embedding, and may tell its grid."""

    def __init__(self, tokens: int, grid: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, 5))
        if grid is not None:
            self.patch_embed = PatchGrid(grid)


def resized(embedding: Tensor, prefix: int, source: tuple[int, int], target: tuple[int, int]) -> Tensor:
    """Resize channel by channel."""
    rows = torch.empty(1, prefix + target[0] * target[1], embedding.shape[2])
    rows[:, :prefix] = embedding[:, :prefix]
    for channel in range(embedding.shape[2]):
        picture = embedding[0, prefix:, channel].reshape(1, 1, *source)
        rows[0, prefix:, channel] = interpolate(picture, size=target, mode="bicubic", align_corners=False).flatten()
    return rows


GRIDS: dict[str, tuple[int, tuple[int, int], tuple[int, int], bool]] = {
    "class token, larger": (1, (4, 4), (6, 6), False),
    "class token, smaller": (1, (6, 6), (4, 4), False),
    "two prefix tokens": (2, (4, 4), (6, 6), False),
    "no prefix": (0, (4, 4), (6, 6), False),
    "grid told": (1, (4, 4), (6, 6), True),
    "five prefix tokens, grid told": (5, (4, 4), (6, 6), True),
    "to a wide grid": (1, (4, 4), (3, 6), True),
    "from a wide grid": (1, (2, 4), (3, 6), True),
    "from a tall grid": (1, (6, 3), (4, 2), True),
}


@pytest.mark.parametrize(("prefix", "source", "target", "told"), GRIDS.values(), ids=GRIDS.keys())
def test_a_position_embedding_is_resized_bicubically(
    prefix: int, source: tuple[int, int], target: tuple[int, int], told: bool
) -> None:
    embedding = torch.randn(1, prefix + source[0] * source[1], 5, generator=torch.Generator().manual_seed(0))
    network = Positions(prefix + target[0] * target[1], target if told else None)
    weights, remarks = fit(network, {"pos_embed": embedding})
    torch.testing.assert_close(weights["pos_embed"], resized(embedding, prefix, source, target))
    grids = f"{source[0]}x{source[1]} to {target[0]}x{target[1]} patches"
    assert remarks == [f"small: pos_embed of checkpoint weights.pth resized from {grids} (bicubic)"]


def test_a_position_embedding_keeps_the_dtype_of_the_network() -> None:
    weights, _ = fit(Positions(26).half(), {"pos_embed": torch.ones(1, 17, 5, dtype=torch.bfloat16)})
    assert weights["pos_embed"].dtype == torch.float16
    assert weights["pos_embed"].shape == (1, 26, 5)


@pytest.mark.parametrize(
    ("network", "embedding"),
    [
        (Positions(17), torch.ones(1, 16, 5)),
        (Positions(17), torch.ones(1, 26, 6)),
        (Positions(17, (4, 4)), torch.ones(1, 8, 5)),
        (Positions(17), torch.ones(26, 5)),
    ],
)
def test_a_position_embedding_that_cannot_be_resized_is_another_shape(network: nn.Module, embedding: Tensor) -> None:
    assert "pos_embed is" in misfit(network, {"pos_embed": embedding})


@pytest.mark.parametrize("arguments", [{}, {"reg_tokens": 3}, {"class_token": False, "global_pool": "avg"}])
def test_a_vision_transformer_of_timm_takes_weights_for_another_image_size(arguments: dict[str, Any]) -> None:
    def network(size: int | tuple[int, int]) -> nn.Module:
        built: nn.Module = timm.models.VisionTransformer(
            img_size=size, patch_size=8, embed_dim=8, depth=1, num_heads=2, num_classes=3, **arguments
        )
        return built

    target = network((16, 40))
    weights, remarks = fit(target, state_of(network(32)))
    target.load_state_dict(weights)
    assert "resized from 4x4 to 2x5 patches" in remarks[0]
    assert len(remarks) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), complex(0, float("nan"))])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_one_number_that_is_not_finite_is_seen(value: complex, size: int) -> None:
    kinds = (
        [torch.complex64]
        if isinstance(value, complex)
        else [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    )
    for dtype in kinds:
        numbers = torch.zeros(size, dtype=dtype)
        assert finite(numbers)
        numbers[size // 2] = torch.tensor(value)
        assert not finite(numbers)


def test_whole_numbers_and_nothing_are_finite() -> None:
    assert finite(torch.tensor([2**62]))
    assert finite(torch.empty(0))
    assert finite(torch.ones(2).to(torch.float8_e4m3fn))
