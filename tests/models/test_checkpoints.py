"""What is taken from a checkpoint, from which entry, and what identifies it."""

from __future__ import annotations

import argparse
import copy
import hashlib
import pathlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from robustkpca.errors import Unusable
from robustkpca.models.checkpoints import Checkpoint, load_weights, read_checkpoint, weights_digest
from robustkpca.specs import file_digest

STATE = {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer.bias": torch.tensor([0.5, -0.5])}
EMA = {name: value + 1 for name, value in STATE.items()}


def saved(folder: Path, content: Any, name: str = "weights.pth", **arguments: Any) -> Path:
    torch.save(content, folder / name, **arguments)
    return folder / name


def prefixed(prefix: str, state: dict[str, Tensor] = STATE) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in state.items()}


def assert_same(state: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(state) == list(expected)
    torch.testing.assert_close(state, expected, rtol=0, atol=0)


CONTAINERS: dict[str, tuple[Any, str]] = {
    "raw": (STATE, ""),
    "ordered": (OrderedDict(STATE), ""),
    "model": ({"model": STATE}, "model"),
    "state_dict": ({"state_dict": STATE, "epoch": 3}, "state_dict"),
    "net": ({"net": STATE, "acc": 93.1}, "net"),
    "module": ({"module": STATE}, "module"),
    "model_state_dict": ({"model_state_dict": STATE, "optimizer_state_dict": {}}, "model_state_dict"),
    "nested": ({"model": {"state_dict": STATE}}, "model.state_dict"),
    "with averages": ({"model_ema": EMA, "model": STATE}, "model"),
    "with averages of timm": ({"state_dict": STATE, "state_dict_ema": EMA}, "state_dict"),
    "two known entries": ({"net": EMA, "model": STATE}, "model"),
    "the only entry": ({"generator": STATE, "epoch": 3}, "generator"),
    "numbers beside weights": (STATE | {"epoch": 3}, ""),
    "a tensor beside an entry": ({"model": STATE, "mean": torch.zeros(3)}, "model"),
}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(("content", "key"), CONTAINERS.values(), ids=CONTAINERS.keys())
def test_weights_are_found_in_every_container_and_the_entry_is_recorded(
    content: Any, key: str, zipped: bool, tmp_path: Path
) -> None:
    held = read_checkpoint(saved(tmp_path, content, _use_new_zipfile_serialization=zipped))
    assert held.key == key
    assert_same(held.state, STATE)


@pytest.mark.parametrize(
    "prefix",
    ["module.", "_orig_mod.", "model.", "module._orig_mod.", "_orig_mod.module.", "model.module.", "module.module."],
)
def test_prefixes_that_all_names_carry_are_stripped_and_recorded(prefix: str, tmp_path: Path) -> None:
    held = read_checkpoint(saved(tmp_path, {"state_dict": prefixed(prefix)}))
    assert_same(held.state, STATE)
    assert held.prefix == prefix


def test_a_prefix_that_one_name_lacks_is_left_alone(tmp_path: Path) -> None:
    mixed = prefixed("model.") | {"mu": torch.zeros(1)}
    assert_same(read_checkpoint(saved(tmp_path, mixed)).state, mixed)


def test_averages_made_by_torch_lose_their_counter(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    averaged = torch.optim.swa_utils.AveragedModel(layer)
    assert_same(read_checkpoint(saved(tmp_path, averaged.state_dict())).state, dict(layer.state_dict()))


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({"model": STATE, "model_ema": EMA}, "model_ema"),
        ({"state_dict": STATE, "state_dict_ema": prefixed("module.", EMA)}, "state_dict_ema"),
        ({"model": STATE, "ema": {"module": EMA, "updates": 7}}, "ema.module"),
        ({"model": STATE, "ema": EMA}, "ema"),
        ({"ema": {"shadow": EMA}, "model": STATE}, "ema.shadow"),
    ],
)
def test_averaged_weights_are_taken_when_asked_for(content: Any, key: str, tmp_path: Path) -> None:
    held = read_checkpoint(saved(tmp_path, content), use_ema=True)
    assert held.key == key
    assert_same(held.state, EMA)


def test_averaged_weights_that_are_not_there_are_an_error_with_what_is(tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": STATE, "net": STATE, "epoch": 3})
    with pytest.raises(Unusable, match=r"holds no averaged weights \(EMA\), only: model, net$"):
        read_checkpoint(path, use_ema=True)
    with pytest.raises(Unusable, match=r"only: the file itself$"):
        read_checkpoint(saved(tmp_path, STATE), use_ema=True)


def test_averaged_weights_are_never_taken_unasked(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"holds averaged weights \(EMA\) only: model_ema; ask for them by use_ema"):
        read_checkpoint(saved(tmp_path, {"model_ema": EMA}))


def test_several_unknown_entries_are_not_guessed_among(tmp_path: Path) -> None:
    with pytest.raises(
        Unusable, match="cannot tell which entry holds the weights: student, teacher; save the right one"
    ):
        read_checkpoint(saved(tmp_path, {"student": STATE, "teacher": STATE}))


@pytest.mark.parametrize(
    "content", [{}, {"model": {}}, {"epoch": 3}, [torch.zeros(2)], torch.zeros(2), 5, {1: torch.zeros(2)}]
)
def test_a_file_without_named_tensors_is_refused(content: Any, tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="holds no tensors under names"):
        read_checkpoint(saved(tmp_path, content))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_container_of_a_training_script_loads(zipped: bool, tmp_path: Path) -> None:
    """As KPCA_code and DeiT write them, with what else scripts leave in their arguments."""
    network = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(network.parameters())
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    container = {
        "model": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "lr_scheduler": {"base_lr": [1e-3], "last_epoch": numpy.int64(3)},
        "epoch": 299,
        "model_ema": {name: value + 1 for name, value in network.state_dict().items()},
        "scaler": {"scale": 65536.0, "growth_factor": 2.0},
        "args": argparse.Namespace(
            model="deit_tiny", betas=(0.9, 0.999), output_dir=pathlib.PurePosixPath("out"), tags={"a"}
        ),
        "best": numpy.float64(72.2),
        "history": numpy.arange(3.0),
    }
    path = saved(tmp_path, container, _use_new_zipfile_serialization=zipped)
    assert_same(read_checkpoint(path).state, dict(network.state_dict()))
    assert read_checkpoint(path).keys_available == ("model", "model_ema")
    assert read_checkpoint(path, use_ema=True).key == "model_ema"


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth", "weights"])
def test_safetensors_is_known_by_its_content(name: str, tmp_path: Path) -> None:
    safetensors.torch.save_file(prefixed("module."), tmp_path / name, metadata={"format": "pt"})
    assert_same(dict(sorted(read_checkpoint(tmp_path / name).state.items())), dict(sorted(STATE.items())))


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin", ".ckpt", ".pth.tar", ".safetensors", ""])
def test_a_file_of_torch_is_known_by_its_content(suffix: str, tmp_path: Path) -> None:
    assert_same(read_checkpoint(saved(tmp_path, STATE, f"weights{suffix}")).state, STATE)


def test_tensors_of_every_common_kind_load(tmp_path: Path) -> None:
    shared = torch.ones(2)
    state = {
        "half": torch.ones(2, dtype=torch.float16),
        "brain": torch.ones(2, dtype=torch.bfloat16),
        "eight": torch.ones(2).to(torch.float8_e4m3fn),
        "count": torch.tensor(5),
        "flag": torch.tensor([True]),
        "complex": torch.ones(2, dtype=torch.complex64),
        "none": torch.empty(0, 3),
        "one": shared,
        "other": shared,
        "view": torch.arange(12.0).reshape(3, 4).T[1:],
    }
    read = read_checkpoint(saved(tmp_path, state)).state
    assert list(read) == list(state)
    for name, value in state.items():
        assert read[name].dtype == value.dtype
        assert torch.equal(read[name].to(torch.complex64), value.to(torch.complex64))


def test_parameters_lose_their_gradient_flag(tmp_path: Path) -> None:
    held = read_checkpoint(saved(tmp_path, {"w": nn.Parameter(torch.ones(2))}))
    assert not held.state["w"].requires_grad


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_that_are_not_finite_are_named(value: float, dtype: torch.dtype, tmp_path: Path) -> None:
    broken = {"a": torch.zeros(2, dtype=dtype), "b.weight": torch.tensor([0.0, value], dtype=dtype)}
    with pytest.raises(Unusable, match=r"1 weights hold NaN or infinite numbers: b\.weight"):
        read_checkpoint(saved(tmp_path, {"model": broken}))


def test_an_attention_mask_may_be_infinite_but_not_nan(tmp_path: Path) -> None:
    read_checkpoint(saved(tmp_path, {"attn_mask": torch.tensor([0.0, -float("inf")])}))
    with pytest.raises(Unusable, match="attn_mask"):
        read_checkpoint(saved(tmp_path, {"attn_mask": torch.tensor([0.0, float("nan")])}))


def test_what_is_not_finite_elsewhere_does_not_matter(tmp_path: Path) -> None:
    broken = {"w": torch.tensor([float("nan")])}
    read_checkpoint(saved(tmp_path, {"model": STATE, "model_ema": broken, "optimizer": {"state": {0: broken}}}))


def test_names_of_tensors_cannot_break_the_line(tmp_path: Path) -> None:
    with pytest.raises(Unusable) as caught:
        read_checkpoint(saved(tmp_path, {"a\nb\x1b[31m": torch.tensor([float("nan")])}))
    assert str(caught.value).isprintable()


def test_the_checkpoint_records_file_and_digest(tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": STATE})
    held = read_checkpoint(str(path))
    assert held.path == str(path)
    assert held.sha256 == file_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert str(held) == f"checkpoint {path} (model)"


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("robustkpca.models.checkpoints.file_digest", denied)
    with pytest.raises(Unusable, match="cannot be read: Permission denied"):
        read_checkpoint(saved(tmp_path, STATE))


def test_weights_read_do_not_change_when_the_file_is_overwritten(tmp_path: Path) -> None:
    path = saved(tmp_path, STATE)
    held = read_checkpoint(path)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert_same(held.state, STATE)


# --- loading ---------------------------------------------------------------------------------------------------------


def checkpoint(state: dict[str, Tensor]) -> Checkpoint:
    return Checkpoint(state=state, key="model", sha256="0" * 64, path="weights.pth")


@pytest.mark.parametrize("wrap", [lambda n: n, nn.DataParallel, lambda n: nn.ModuleDict({"model": n})])
def test_a_saved_network_is_the_same_after_loading(wrap: Callable[[nn.Module], nn.Module], tmp_path: Path) -> None:
    source = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    source.get_buffer("1.running_mean").uniform_()
    target = wrap(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)))
    held = read_checkpoint(saved(tmp_path, {"state_dict": prefixed("module.", source.state_dict())}))
    assert load_weights(target, held, name="small") == []
    inner = next(module for module in target.modules() if isinstance(module, nn.Sequential))
    assert weights_digest(inner) == weights_digest(source)


def test_loading_keeps_dtype_identity_and_gradient_flags() -> None:
    network = nn.Linear(3, 2).to(torch.float64)
    weight = network.weight
    weight.requires_grad_(False)
    load_weights(
        network,
        checkpoint({"weight": torch.full((2, 3), 0.5), "bias": torch.zeros(2, dtype=torch.float16)}),
        name="small",
    )
    assert network.weight is weight
    assert network.weight.dtype == network.bias.dtype == torch.float64
    assert not network.weight.requires_grad
    assert network.bias.requires_grad
    assert network.weight.eq(0.5).all()


def test_loading_copies_so_that_the_checkpoint_stays_as_it_was() -> None:
    held = checkpoint({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    network = nn.Linear(3, 2)
    load_weights(network, held, name="small")
    with torch.no_grad():
        network.weight.zero_()
    assert held.state["weight"].eq(1).all()


@pytest.mark.parametrize(
    "state",
    [
        {"weight": torch.ones(2, 3)},
        {"weight": torch.ones(2, 3), "bias": torch.ones(2), "more": torch.ones(1)},
        {"weight": torch.ones(2, 3), "bias": torch.ones(3)},
        {"weight": torch.ones(2, 3), "bias": torch.ones(2, dtype=torch.int64)},
    ],
)
def test_nothing_is_loaded_when_something_does_not_fit(state: dict[str, Tensor]) -> None:
    network = nn.Linear(3, 2)
    before = weights_digest(network)
    with pytest.raises(Unusable, match=r"^checkpoint weights\.pth \(model\): "):
        load_weights(network, checkpoint(state), name="small")
    assert weights_digest(network) == before


# --- identity --------------------------------------------------------------------------------------------------------


class Mixed(nn.Module):
    """Tensors of every kind that a state holds."""

    def __init__(self) -> None:
        super().__init__()
        self.brain = nn.Parameter(torch.arange(4, dtype=torch.bfloat16))
        self.scalar = nn.Parameter(torch.tensor(2.0))
        self.matrix = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("none", torch.empty(0, 2))


def test_the_digest_survives_a_round_trip_through_every_format(tmp_path: Path) -> None:
    network = Mixed()
    safetensors.torch.save_file(network.state_dict(), tmp_path / "c.safetensors")
    paths = [
        saved(tmp_path, network.state_dict(), "a.pth"),
        saved(tmp_path, {"model": network.state_dict()}, "b.pth", _use_new_zipfile_serialization=False),
        tmp_path / "c.safetensors",
    ]
    for path in paths:
        other = Mixed()
        with torch.no_grad():
            other.matrix.zero_()
        load_weights(other, read_checkpoint(path), name="mixed")
        assert weights_digest(other) == weights_digest(network)


@pytest.mark.parametrize("name", ["brain", "matrix", "scalar", "count", "flags"])
def test_the_digest_differs_when_one_bit_differs(name: str) -> None:
    network, other = Mixed(), Mixed()
    content = other.get_buffer(name) if name in ("count", "flags") else other.get_parameter(name)
    content.detach().reshape(-1).view(torch.uint8)[-1] ^= 1
    assert weights_digest(network) != weights_digest(other)


def test_the_digest_covers_names_shapes_and_dtypes() -> None:
    def digest(**buffers: Tensor) -> str:
        network = nn.Module()
        for name, value in buffers.items():
            network.register_buffer(name, value)
        return weights_digest(network)

    variants = [
        digest(a=torch.zeros(4)),
        digest(b=torch.zeros(4)),
        digest(a=torch.zeros(2, 2)),
        digest(a=torch.zeros(4, dtype=torch.int32)),
        digest(a=torch.zeros(2), b=torch.zeros(2)),
        digest(a=torch.zeros(4), b=torch.zeros(0)),
    ]
    assert len(set(variants)) == len(variants)
    assert digest(a=torch.zeros(1), b=torch.ones(1)) == digest(b=torch.ones(1), a=torch.zeros(1))


def test_the_digest_does_not_depend_on_the_memory_layout() -> None:
    network = nn.Conv2d(3, 4, 3)
    other = copy.deepcopy(network).to(memory_format=torch.channels_last)
    assert not other.weight.is_contiguous()
    assert weights_digest(network) == weights_digest(other)


def test_the_digest_is_the_one_that_is_written_in_old_results() -> None:
    """A changed value would orphan every stored result."""
    network = nn.Module()
    network.register_buffer("w", torch.tensor([1.0]))
    expected = hashlib.sha256(b'["w", "torch.float32", [1]]\n' + b"\x00\x00\x80\x3f").hexdigest()
    assert weights_digest(network) == expected


def test_a_state_without_values_has_no_digest() -> None:
    with pytest.raises(Unusable, match="state entry bias is no dense tensor with values"):
        weights_digest(nn.Linear(2, 2, device="meta"))


@pytest.mark.gpu
def test_the_digest_does_not_depend_on_the_device() -> None:
    assert weights_digest(Mixed().cuda()) == weights_digest(Mixed())


@pytest.mark.parametrize("place", ["buffer", "attribute", "list", "mapping", "array", "inner"])
def test_what_a_state_leaves_out_is_part_of_the_identity_all_the_same(place: str) -> None:
    """Prototypes in a plain attribute decide about every output, and another set of them is another model."""

    def network(value: float) -> nn.Module:
        made, held = nn.Linear(3, 2), torch.full((2,), value)
        with torch.no_grad():
            made.weight.fill_(1), made.bias.fill_(1)
        if place == "buffer":
            made.register_buffer("held", held, persistent=False)
        elif place == "inner":
            made.inner = nn.Identity()
            made.inner.held = held
        else:
            made.held = {"attribute": held, "list": [held], "mapping": {"a": held}, "array": held.numpy()}[place]
        return made

    assert weights_digest(network(1)) == weights_digest(network(1))
    assert weights_digest(network(1)) != weights_digest(network(2))


def test_a_container_that_holds_itself_has_an_identity() -> None:
    network, cycle = nn.Linear(3, 2), []
    cycle.append(cycle)
    network.cycle = cycle
    assert weights_digest(network)


def test_a_small_file_that_stands_for_a_hundred_billion_numbers_is_one_line(tmp_path: Path) -> None:
    path = saved(tmp_path, {"layer.weight": torch.zeros(1).expand(10**5, 10**6), "layer.bias": torch.zeros(2)})
    held = read_checkpoint(path)
    with pytest.raises(Unusable, match="another shape"):
        load_weights(nn.Sequential(OrderedDict(layer=nn.Linear(3, 2))), held, name="small")


def test_numbers_that_torch_cannot_compute_with_are_one_line(tmp_path: Path) -> None:
    packed = torch.zeros(2, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(Unusable, match="its numbers cannot be read"):
        read_checkpoint(saved(tmp_path, {"layer.weight": packed}))
