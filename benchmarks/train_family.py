"""Train one small transformer for each attention on the digits, by one recipe and three seeds each.

    python benchmarks/train_family.py FOLDER [--epochs N]

Checkpoints go to FOLDER; a second call continues. ``benchmarks/family_board.py FOLDER`` scores them, writes the leaderboard
and bundles the first seed of those that have a name.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from robustkpca.data import open_data
from robustkpca.training import Training, train

FAMILY = {
    "softmax": "vit_digits(depth=2,attention=softmax)",
    "symmetric": "vit_digits(depth=2,attention=symmetric)",
    "rpc, first layer": "vit_digits(depth=2,attention=rpc)",
    "rpc, all layers": "vit_digits(depth=2,attention=rpc,layers=all)",
    "scaled, S": "vit_digits(depth=2,attention=scaled)",
    "scaled, alpha": "vit_digits(depth=2,attention=scaled,form=alpha)",
    "kde": "vit_digits(depth=2,attention=kde)",
    "rkde, Hampel": "vit_digits(depth=2,attention=rkde,loss=hampel,form=textbook,a=0.4)",
    "mom": "vit_digits(depth=2,attention=mom)",
    "elliptical": "vit_digits(depth=2,attention=elliptical)",
    "fan, softmax": "fan_digits(attention=softmax)",
    "fan, rpc": "fan_digits(attention=rpc)",
}
SEEDS = (0, 1, 2)
RECIPE = "digits(epochs={epochs},seed={seed},batch_size=32,rate=0.001,warmup_epochs=2,augmentation=plain,smoothing=0)"


def checkpoint(folder: Path, model: str, seed: int) -> Path:
    """Return where the weights of one training lie."""
    plain = "".join(sign if sign.isalnum() else "-" for sign in model).strip("-")
    return folder / f"{plain}-{seed}.pth"


def main() -> None:
    """Train what is not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    data = open_data("digits/train")
    for seed in SEEDS:
        for title, model in FAMILY.items():
            begun = time.perf_counter()
            recipe = RECIPE.format(epochs=arguments.epochs, seed=seed)
            train(Training(model, data, recipe), checkpoint(arguments.folder, model, seed))
            print(f"{title}, seed {seed}: {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
