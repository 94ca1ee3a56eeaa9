"""Measure the attentions against straightforward versions of themselves: time forward and with backward, peak memory.

    python benchmarks/attention.py [--threads T] [--device D] [--repeats R] [--only NAME]

One row for each mechanism on the same queries, keys and values, B8 H3 N197 d64. "Straightforward" writes the formula out with
matrices of all pairs of tokens, as the released code does. Both run with denormal numbers flushed; the last two rows show
whether denormals cost anything where they are not. The contenders take turns, and the least of their times is shown;
memory is the peak of what torch allocates in one forward and backward pass
beside the inputs. The second table is inference of whole networks.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize, scaled_dot_product_attention

from robustkpca.models import create_model
from robustkpca.models.elliptical_attention import EllipticalAttention
from robustkpca.models.kde_attention import KDEAttention, RKDEAttention
from robustkpca.models.mom_attention import MoMAttention
from robustkpca.models.pursuit import Pursuit, principal_component_pursuit_attention
from robustkpca.models.scaled_attention import ScaledAttention
from robustkpca.models.spkde_attention import SPKDEAttention

BATCH, HEADS, TOKENS, WIDTH, ITERATIONS = 8, 3, 197, 64, 6
Heads = Callable[[Tensor, Tensor, Tensor], Tensor]


def plain(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return torch.softmax(queries @ keys.mT * WIDTH**-0.5, -1) @ values


def plain_pursuit(_: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    mu = TOKENS * HEADS * WIDTH / 4 / keys.abs().sum((-1, -2), keepdim=True)
    level = 4.0 * mu
    low_rank = multiplier = torch.zeros_like(keys)
    for iteration in range(ITERATIONS):
        rest = keys - low_rank + multiplier / mu
        sparse = (rest - level) * (rest >= level) + (rest + level) * (rest <= -level)
        cleaned = keys - sparse - multiplier / mu
        low_rank = plain(cleaned, cleaned, values)
        if iteration < ITERATIONS - 1:
            multiplier = multiplier + mu * (keys - low_rank - sparse)
    return low_rank


def six_fused(_: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    for _ in range(ITERATIONS):
        values = scaled_dot_product_attention(keys, keys, values)
    return values


def log_kernel(queries: Tensor, keys: Tensor) -> Tensor:
    return -(WIDTH**-0.5) * torch.cdist(queries, keys).square()


def plain_kde(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    kernel = log_kernel(queries, normalize(keys, dim=-1))
    return (kernel - kernel.logsumexp(-1, keepdim=True)).exp() @ values


def weighted_kde(queries: Tensor, keys: Tensor, values: Tensor, joint: Tensor, marginal: Tensor) -> Tensor:
    kernel = log_kernel(queries, keys)
    below = (marginal[..., None, :] + kernel).logsumexp(-1, keepdim=True)
    return (joint[..., None, :] + kernel - below).exp() @ values


def plain_rkde(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    keys = normalize(keys, dim=-1)
    logs = []
    for points in (torch.cat([keys, values], -1), keys):
        gram = torch.exp(-(WIDTH**-0.5) * torch.cdist(points.double(), points.double()).square())
        near = gram.mean(-1)
        share = 0.2 / (1 + near + near.mean(-1, keepdim=True)).sqrt()
        logs.append((share / share.sum(-1, keepdim=True)).log().to(keys.dtype))
    return weighted_kde(queries, keys, values, *logs)


def plain_spkde(layer: SPKDEAttention) -> Heads:
    def heads(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        keys = normalize(keys, dim=-1)
        logs = [layer.log_weights(points, WIDTH**-0.5) for points in (torch.cat([keys, values], -1), keys)]
        return weighted_kde(queries, keys, values, *logs)

    return heads


def plain_mom(layer: MoMAttention) -> Heads:
    def heads(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        keys = normalize(keys, dim=-1)
        kernel, sets = log_kernel(queries, keys), layer.draw(TOKENS)
        scores = torch.stack([kernel[..., one].sum((1, 2, 3)) for one in sets], -1)
        chosen = sets[scores.argsort(-1)[:, len(sets) // 2]]
        parts = []
        for image, places in enumerate(chosen):
            part = kernel[image][..., places]
            parts.append((part - part.logsumexp(-1, keepdim=True)).exp() @ values[image][..., places, :])
        return torch.stack(parts)

    return heads


def plain_elliptical(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    moved = (values.detach() - BEFORE.to(values)).abs().mean(-2, keepdim=True)
    return plain(queries * (moved / moved.amax(-1, keepdim=True)), keys, values)


def plain_scaled(layer: ScaledAttention) -> Heads:
    def heads(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return plain(queries, keys, values - layer.s * plain(keys, keys, values))

    return heads


BEFORE = torch.randn(BATCH, HEADS, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
DIM = HEADS * WIDTH


def contenders() -> dict[str, tuple[Heads, Heads]]:
    """Return, for each row, this package's form and the straightforward one."""
    scaled, spkde, mom = ScaledAttention(DIM, HEADS, form="alpha"), SPKDEAttention(DIM, HEADS), MoMAttention(DIM, HEADS)
    torch.nn.init.constant_(scaled.s, 0.3)
    kde, rkde, elliptical = KDEAttention(DIM, HEADS), RKDEAttention(DIM, HEADS), EllipticalAttention(DIM, HEADS)
    pursuit = Pursuit(ITERATIONS)
    return {
        "rpc, 6 passes": (lambda q, k, v: principal_component_pursuit_attention(k, v, pursuit), plain_pursuit),
        "(6 plain fused attentions)": (six_fused, plain_pursuit),
        "scaled, alpha": (lambda q, k, v: scaled.attend((q, k, v)), plain_scaled(scaled)),
        "kde": (lambda q, k, v: kde.attend((q, k, v)), plain_kde),
        "rkde, Huber": (lambda q, k, v: rkde.attend((q, k, v)), plain_rkde),
        "spkde": (lambda q, k, v: spkde.attend((q, k, v)), plain_spkde(spkde)),
        "mom": (lambda q, k, v: mom.eval().attend((q, k, v)), plain_mom(mom)),
        "elliptical": (lambda q, k, v: elliptical.attend((q, k, v), BEFORE.to(v)), plain_elliptical),
    }


def inputs(device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return list(torch.randn(3, BATCH, HEADS, TOKENS, WIDTH, generator=generator).to(device).unbind())


def clock(run: Callable[[], object], device: str) -> float:
    """Return the milliseconds of one call."""
    if device != "cpu":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    run()
    if device != "cpu":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begun)


def turns(runs: list[Callable[[], object]], repeats: int, device: str) -> list[float]:
    """Let all take turns; return the least of each in milliseconds, after one turn for warming up."""
    for run in runs:
        run()
    taken = [[clock(run, device) for run in runs] for _ in range(repeats)]
    return [min(column) for column in zip(*taken, strict=True)]


def forward(heads: Heads, device: str) -> Callable[[], object]:
    parts = inputs(device)

    def run() -> None:
        with torch.no_grad():
            heads(*parts)

    return run


def backward(heads: Heads, device: str) -> Callable[[], object]:
    leaves = [part.requires_grad_(True) for part in inputs(device)]

    def run() -> None:
        for leaf in leaves:
            leaf.grad = None
        heads(*leaves).sum().backward()

    return run


def peak(run: Callable[[], object], device: str) -> float:
    """Return the most MiB that torch held at once during one call beyond the inputs."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        run()
        return float(torch.cuda.max_memory_allocated() - held) / 2**20
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    held = most = 0
    assert profile.profiler is not None
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most / 2**20


def row(values: list[float], unit: str = "ms") -> str:
    ours, theirs = values
    return f"{ours:.1f} / {theirs:.1f} {unit} ({ours / theirs:.2f})"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    arguments = parser.parse_args()
    device, repeats = arguments.device, arguments.repeats
    torch.set_num_threads(arguments.threads)
    name = torch.cuda.get_device_name() if device != "cpu" else torch.backends.cpu.get_cpu_capability()
    print(f"{platform.machine()}, {name}, {arguments.threads} threads, torch {torch.__version__}")
    print(f"B{BATCH} H{HEADS} N{TOKENS} d{WIDTH}, float32: ours / straightforward (ratio)\n")
    print("| heads | forward | with backward | peak memory |\n| --- | ---: | ---: | ---: |")
    torch.set_flush_denormal(True)
    for title, pair in contenders().items():
        if arguments.only not in title:
            continue
        if title != "(6 plain fused attentions)":
            ours, theirs = (heads(*inputs(device)) for heads in pair)
            assert (ours - theirs).norm() < 1e-3 * theirs.norm(), title
        once = turns([forward(heads, device) for heads in pair], repeats, device)
        both = turns([backward(heads, device) for heads in pair], repeats, device)
        memory = [peak(backward(heads, device), device) for heads in pair]
        print(f"| {title} | {row(once)} | {row(both)} | {row(memory, 'MiB')} |", flush=True)
    pursuit = contenders()["rpc, 6 passes"]
    for flush in (True, False):
        torch.set_flush_denormal(flush)
        once = turns([forward(heads, device) for heads in pursuit], repeats, device)
        both = turns([backward(heads, device) for heads in pursuit], repeats, device)
        state = "flushed" if flush else "kept"
        print(f"| rpc, denormals {state} | {row(once)} | {row(both)} | |", flush=True)
    torch.set_flush_denormal(False)
    print("\n| inference of 8 images | ms | of softmax |\n| --- | ---: | ---: |")
    names = ["softmax_vit_tiny", "symvit_tiny", "rpc_symvit_tiny(iterations=2,layers=all)", "rpc_symvit_tiny"]
    networks = [create_model(one).eval().to(device) for one in names]
    images = torch.rand(8, 3, 224, 224, generator=torch.Generator().manual_seed(0)).to(device)

    def inference(network: torch.nn.Module) -> Callable[[], object]:
        def run() -> None:
            with torch.no_grad():
                network(images)

        return run

    taken = turns([inference(network) for network in networks], max(3, repeats // 3), device)
    for one, milliseconds in zip(names, taken, strict=True):
        print(f"| {one} | {milliseconds:.0f} | {milliseconds / taken[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
