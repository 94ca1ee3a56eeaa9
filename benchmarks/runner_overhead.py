"""Measure what the runner costs over a bare loop: PGD-20 on the same images, in the same batches, with the same passes.

    python benchmarks/runner_overhead.py [--repetitions N] [--threads T]

The bare loop is what one would write by hand: 20 steps, then a last pass for the accuracy. The runner reads the images,
makes a pass over the clean ones, judges every candidate, and writes the records to disk. The radius is so small that
nothing breaks; hence nobody is withdrawn, and both sides take the same steps. Repetitions alternate between the two; a
ratio is the median of those of neighbours in time, so that other work on the machine disturbs both sides alike. The last
column compares the fastest repetition of each side, which such work disturbs least.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from robustkpca.data.arrays import array_data
from robustkpca.data.dataset import Dataset
from robustkpca.models import load_model
from robustkpca.models.classifier import TorchClassifier
from robustkpca.runner import plan, run
from robustkpca.store import ResultStore
from robustkpca.tasks.classification import CLASSIFICATION
from robustkpca.threats import ThreatModel

RADIUS, STEPS, BATCH = 1e-4, 20, 32
CASES = (("rpc_symvit_digits", 128), ("symvit_tiny(img_size=64)", 32))


def bare(model: TorchClassifier, images: Tensor, labels: Tensor) -> float:
    """Run PGD by hand, and return the accuracy on its last images."""
    right = 0
    for x0, y in zip(images.split(BATCH), labels.split(BATCH), strict=True):
        x = (x0 + RADIUS * (2 * torch.rand_like(x0) - 1)).clamp(0, 1)
        for _ in range(STEPS):
            x = x.detach().requires_grad_(True)
            loss = torch.nn.functional.cross_entropy(model.network(model.normalise(x)), y, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, x)
            x = x.detach() + 0.15 * RADIUS * gradient.sign()
            x = (x0 + (x - x0).clamp(-RADIUS, RADIUS)).clamp(0, 1)
        with torch.no_grad():
            right += int((model.network(model.normalise(x)).argmax(1) == y).sum())
    return right / len(images)


def with_runner(model: TorchClassifier, data: Dataset, folder: str) -> ResultStore:
    """Let the runner do the same, and return the store with its records."""
    threat = ThreatModel.parse(f"pgd(steps={STEPS})@linf:{RADIUS}")
    store, positions = ResultStore(folder), range(len(data.ids))
    groups = plan(store, model.spec.id, [threat], data, positions, seed=0)
    run(CLASSIFICATION, model, data, groups, store, planned=len(positions))
    return store


def surviving(model: TorchClassifier, count: int) -> tuple[Tensor, Tensor]:
    """Return random images with the labels that the model gives them, all far from its borders."""
    size, channels = (8, 1) if "digits" in model.spec.name else (64, 3)
    images = torch.rand(4 * count, channels, size, size, generator=torch.Generator().manual_seed(0))
    top = model.logits(images).topk(2, dim=1)
    chosen = (top.values[:, 0] - top.values[:, 1]).topk(count).indices
    return images[chosen], top.indices[chosen, 0]


def timed(side: str, model: TorchClassifier, data: Dataset, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return wall and processor seconds of one side, after which everything must stand unbroken."""
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        made = bare(model, images, labels) if side == "bare" else with_runner(model, data, folder)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        accuracy = (made.frame()["verdict"] == "survived").mean() if isinstance(made, ResultStore) else made
    if accuracy != 1:
        raise SystemExit(f"{side}: accuracy {accuracy}; the two sides did not take the same steps")
    return wall, cpu


def main() -> None:
    """Print one line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{cpu_name()}, {arguments.threads} threads, Python {platform.python_version()}, torch {torch.__version__}\n")
    print("| model | images | bare, cpu s | runner, cpu s | cpu ratio | wall ratio | of the fastest, cpu |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, count in CASES:
        model = load_model(name, preprocessing="resize=none,crop=none", batch_size=BATCH)
        with model.evaluating():
            images, labels = surviving(model, count)
            classes = model.logits(images[:1]).shape[1]
            data = array_data(images, labels, name="random", classes=classes)
            taken: dict[str, list[tuple[float, float]]] = {"bare": [], "runner": []}
            for repetition in range(arguments.repetitions + 1):
                for side in sorted(taken, reverse=bool(repetition % 2)):
                    taken[side].append(timed(side, model, data, images, labels))
        wall, cpu = ({side: [one[kind] for one in times[1:]] for side, times in taken.items()} for kind in (0, 1))
        print(
            f"| {name} | {count} | {median(cpu['bare']):.2f} | {median(cpu['runner']):.2f} "
            f"| {ratio(cpu['runner'], cpu['bare']):.3f} | {ratio(wall['runner'], wall['bare']):.3f} "
            f"| {min(cpu['runner']) / min(cpu['bare']):.3f} |",
            flush=True,
        )


def ratio(above: list[float], below: list[float]) -> float:
    """Return the median of the ratios of neighbours."""
    return median(a / b for a, b in zip(above, below, strict=True))


def cpu_name() -> str:
    """Return the processor's name, where the system tells it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
