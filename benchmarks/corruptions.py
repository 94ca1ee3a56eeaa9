"""Time the corruptions of ImageNet-C against the packages that offer them, in one run and on one core.

    pip install --no-deps imagecorruptions-imaug==1.1.5 corrupt-tta==0.1.7
    pip install numba scikit-image
    python benchmarks/corruptions.py [FOLDER OF PHOTOS] > benchmarks/corruptions.md

Each package changes the same photos at 224 x 224 pixels, the severities one after the other; a round of ours is followed by
a round of each other, and the fastest of several rounds counts. Ours takes and gives the batch of tensors that a model
sees, the conversion included; the others take and give one array for each picture, and their floats stay floats.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import cv2
import torch
from PIL import Image
from threadpoolctl import threadpool_limits

from robustkpca.draws import Draws
from robustkpca.preprocessing import Preprocessing
from robustkpca.registry import entries

PHOTOS, ROUNDS = 4, 3
Run = Callable[[str, int], object]


def photos(folder: Path) -> torch.Tensor:
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpeg", ".jpg", ".png"))
    if len(files) < PHOTOS:
        raise SystemExit(f"{folder} holds {len(files)} photos; name a folder with at least {PHOTOS}")
    crop = Preprocessing.parse("resize=256,crop=224")
    return torch.stack(
        [crop.apply(Image.open(file).convert("RGB")) for file in files[:: len(files) // PHOTOS][:PHOTOS]]
    )


def contestants(images: torch.Tensor) -> dict[str, Run]:
    arrays = [image.permute(1, 2, 0).contiguous().numpy() for image in images]
    draws = Draws.of([str(index) for index in range(len(images))], seed=0, threat="benchmark")
    functions = {name: entry.load() for name, entry in entries("corruptions").items() if "images" in entry.tags}
    found: dict[str, Run] = {"ours": lambda name, severity: functions[name](images, severity=severity, draws=draws)}
    try:
        import imagecorruptions

        found["imagecorruptions-imaug"] = lambda name, severity: [
            imagecorruptions.corrupt(array, corruption_name=name, severity=severity) for array in arrays
        ]
    except ImportError as error:
        print(f"imagecorruptions-imaug is left out: {error}", file=sys.stderr)
    try:
        import corrupt_tta

        found["corrupt-tta"] = lambda name, severity: [
            corrupt_tta.corrupt(array, corruption_name=name, severity=severity) for array in arrays
        ]
    except ImportError as error:
        print(f"corrupt-tta is left out: {error}", file=sys.stderr)
    return found


def milliseconds(run: Run, name: str) -> float:
    started = time.process_time()
    for severity in range(1, 6):
        run(name, severity)
    return (time.process_time() - started) * 1000 / PHOTOS


def main() -> None:
    threadpool_limits(1)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    warnings.simplefilter("ignore")
    default = Path(__file__).resolve().parents[2] / "shared" / "data" / "imagenet-sample"
    images = photos(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    runs = contestants(images)
    catalogue = {name: one for name, one in entries("corruptions").items() if "images" in one.tags}
    best: dict[str, dict[str, float]] = {}
    for name in catalogue:
        for run in runs.values():
            run(name, 1)  # tables are made and code is compiled once
        rounds = [{who: milliseconds(run, name) for who, run in runs.items()} for _ in range(ROUNDS)]
        best[name] = {who: min(one[who] for one in rounds) for who in runs}
        print(name, {who: round(value, 1) for who, value in best[name].items()}, file=sys.stderr)
    report(best, [name for name, entry in catalogue.items() if "imagenet-c" in entry.tags], list(runs)[1:])


def report(best: dict[str, dict[str, float]], suite: list[str], others: list[str]) -> None:
    def row(title: str, times: dict[str, float]) -> None:
        fastest = min(times[other] for other in others)
        cells = [f"{times['ours']:.1f}", *(f"{times[other]:.1f}" for other in others), f"{times['ours'] / fastest:.2f}"]
        print(f"| {title} | {' | '.join(cells)} |")

    packages = ("robustkpca", "numpy", "scipy", "opencv-python-headless", "pillow", "scikit-image", *others)
    print("# Corruptions: milliseconds for one picture of 224 x 224 at all five severities, on one core\n")
    print(
        f"`python benchmarks/corruptions.py`; {PHOTOS} photos, fastest of {ROUNDS} rounds; the last column divides ours"
    )
    print("by the fastest of the others.\n")
    print(f"| corruption | ours | {' | '.join(others)} | ratio |")
    print(f"|---|{'---:|' * (len(others) + 2)}")
    for name, times in best.items():
        row(f"`{name}`", times)
    sums = {who: sum(best[name][who] for name in suite) for who in ("ours", *others)}
    row("the suite of 15", sums)
    fastest = sum(min(best[name][other] for other in others) for name in suite)
    print(
        f"\nOurs takes {sums['ours'] / fastest:.2f} of the sum of the fastest package for each corruption ({fastest:.0f} ms)."
    )
    print("\nVersions: " + ", ".join(f"{name} {_version(name)}" for name in packages) + ".")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
