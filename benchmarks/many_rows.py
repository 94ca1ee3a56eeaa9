"""Measure a store of five million records: its size, and the time and memory of every table drawn from it.

    python benchmarks/many_rows.py [--models 10] [--threats 10] [--samples 50000] [--folder FOLDER]

The records are written by the project's own store, in shards of 256 as a run writes them, with random losses, margins,
distances and costs as in a real run; every table is drawn by the command line in a process of its own, whose largest
resident memory is read in the end.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

from robustkpca.preprocessing import Preprocessing
from robustkpca.records import RunHeader
from robustkpca.specs import DataSpec, ModelSpec
from robustkpca.store import Cell, ResultStore

COMMANDS = (
    ("show",),
    ("leaderboard",),
    ("leaderboard", "--format", "csv"),
    ("leaderboard", "--format", "json"),
    ("leaderboard", "--format", "latex"),
    ("leaderboard", "--format", "html"),
    ("leaderboard", "--costs"),
    ("compare", "net0", "net1"),
)


def written(folder: Path, models: int, threats: int, samples: int, shard: int) -> None:
    """Write the records of one run of every model under every threat."""
    store = ResultStore(folder)
    draws = numpy.random.default_rng(0)
    ids = [f"n{index // 50:08d}/ILSVRC2012_val_{index:08d}.JPEG" for index in range(samples)]
    labels = numpy.arange(samples) // 50
    data = DataSpec("imagenet", "imagenet-folder", samples, 1000, "0" * 64, path="imagenet/val")
    for one in range(models):
        skill = draws.normal(2 + one / 10, 2, samples)
        spec = ModelSpec(f"net{one}", f"{one:064d}", Preprocessing(256, 224), checkpoint="0" * 64, label=f"net{one}")
        for step in range(threats):
            threat = "clean" if step == 0 else f"pgd(steps={step})@linf:{step}/255"
            cell = Cell(spec.id, threat, 1, data.id, 0)
            margin = skill - step + draws.normal(0, 1, samples)
            verdict = numpy.where(skill < 0, "mistaken", numpy.where(margin > 0, "survived", "broken"))
            prediction = numpy.where(margin > 0, labels, draws.integers(0, 1000, samples))
            columns = {
                "label": labels, "clean_prediction": numpy.where(skill > 0, labels, prediction), "prediction": prediction,
                "top5": draws.random(samples) < 0.9, "loss": numpy.logaddexp(0, -margin),
                "confidence": 1 / (1 + numpy.exp(-numpy.abs(margin))), "margin": margin, "verdict": verdict,
                "distance": numpy.full(samples, step / 255), "forwards": draws.integers(1, 2 + step, samples),
                "backwards": draws.integers(0, 1 + step, samples), "zero_gradients": numpy.zeros(samples, int),
                "nonfinite_gradients": numpy.zeros(samples, int), "detail": numpy.full(samples, ""),
            }  # fmt: skip
            for start in range(0, samples, shard):
                part = slice(start, start + shard)
                header = RunHeader(
                    spec.to_dict(), threat, 1, data.to_dict(), "classification", 0, "cpu", "float32", 32, 1.0,
                    f"2026-01-01T00:00:{start % 60:02d}+00:00", {"python": "3.11"}, "robustkpca", samples, threat,
                )  # fmt: skip
                store.write(cell, header, ids[part], {name: values[part].tolist() for name, values in columns.items()})


def measured(command: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """Return seconds on the clock and the largest resident GiB of a command."""
    run = [sys.executable, "-m", "robustkpca", *command, str(folder)]
    start = time.perf_counter()
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder.parent)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    assert os.waitstatus_to_exitcode(status) == 0, said.decode()
    return seconds, usage.ru_maxrss / 2**20


def main() -> None:
    """Print the size of the store and one line for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--threats", type=int, default=10)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--shard", type=int, default=256)
    parser.add_argument("--folder", type=Path, help="kept and reused; a temporary one where it is not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "results"
        if not folder.exists():
            start = time.perf_counter()
            written(folder, options.models, options.threats, options.samples, options.shard)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"written in {time.perf_counter() - start:.0f} s, {memory:.2f} GiB")
        files = [path for path in folder.rglob("*") if path.is_file()]
        print(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.0f} MB", flush=True)
        for command in COMMANDS:
            seconds, memory = measured(command, folder)
            print(f"| `{' '.join(command)}` | {seconds:.1f} s | {memory:.2f} GiB |", flush=True)


if __name__ == "__main__":
    main()
