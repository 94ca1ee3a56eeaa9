"""Score what ``train_family.py`` trained, write the leaderboard, and bundle the first seed of every named model.

    python benchmarks/family_board.py FOLDER

Weights go to ``robustkpca/models/bundled``, the table to ``leaderboards/attention-family.md``. A second call computes what is
missing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from train_family import FAMILY, RECIPE, SEEDS, checkpoint

import robustkpca as rk
from robustkpca.boards import leaderboard
from robustkpca.calls import Call
from robustkpca.data import open_data
from robustkpca.data.selection import selection
from robustkpca.formats import render
from robustkpca.models import create_model, load_model
from robustkpca.models.checkpoints import read_checkpoint

ROOT = Path(__file__).parent.parent
LIMIT = 270  # of 540 test images
BUNDLED = {
    "rpc, all layers": "rpc_all_vit_digits",
    "scaled, S": "scaled_s_vit_digits",
    "scaled, alpha": "scaled_alpha_vit_digits",
    "kde": "kde_vit_digits",
    "rkde, Hampel": "hampel_vit_digits",
    "mom": "mom_vit_digits",
    "elliptical": "elliptical_vit_digits",
    "fan, softmax": "softmax_fan_digits",
    "fan, rpc": "rpc_fan_digits",
}
HEAD = """# Attention mechanisms on digits

Twelve small transformers of equal width, trained by one plain recipe from {seeds} seeds each, on 1257 handwritten digits
of 8 x 8 pixels:

    {recipe}

Nothing in that training makes a model robust. One row is one training; rows of one mechanism differ by their seed alone,
which tells how much of a difference between mechanisms is chance. The two FAN differ from the others by more than their
attention: convolutions in stem and perceptrons, and more weights. All are scored on {count} of the 540 test images. None of
this says anything of ImageNet, of longer training or of other sizes. Made by `benchmarks/train_family.py` and
`benchmarks/family_board.py`.

{means}
"""


def bundle(folder: Path) -> None:
    """Write the first seed of the named models, with where it comes from."""
    made = {}
    for title, name in BUNDLED.items():
        path = checkpoint(folder, FAMILY[title], SEEDS[0])
        state = {key: value.contiguous() for key, value in read_checkpoint(path).state.items()}
        create_model(name).load_state_dict(state)
        target = ROOT / "robustkpca" / "models" / "bundled" / f"{name}.safetensors"
        save_file(state, target)
        made[name] = {"weights": load_model(name, target).spec.weights, "model": FAMILY[title]}
    provenance = {"script": "benchmarks/train_family.py", "recipe": recipe(SEEDS[0]), "torch": torch.__version__}
    text = json.dumps(provenance | {"models": made}, indent=2)
    (ROOT / "robustkpca" / "models" / "bundled" / "family.json").write_text(text + "\n", encoding="utf-8")


def recipe(seed: int | str) -> str:
    return RECIPE.format(epochs=20, seed=seed)


def main() -> None:
    """Bundle, score and write."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    bundle(folder)
    titles = {}
    seeds = [seed for seed in SEEDS if all(checkpoint(folder, model, seed).exists() for model in FAMILY.values())]
    for seed in seeds:
        for title, model in FAMILY.items():
            path = checkpoint(folder, model, seed)
            titles[load_model(model, path).spec.id] = f"{title}, seed {seed}"
            one = {"name": model, "checkpoint": str(path)}
            rk.score([one], "quick", out=folder / "results", limit=LIMIT, batch_size=128)
            print(f"{title}, seed {seed}", flush=True)
    frame = rk.read(folder / "results")
    data = open_data("digits")
    chosen = {data.ids[position] for position in selection(data.ids, LIMIT)}
    frame = frame[frame["model"].isin(titles) & frame["sample"].isin(chosen)].copy()
    frame["model_name"] = frame["model"].map(titles)
    tables = leaderboard(frame, "quick")
    columns = [column.title for column in tables[0].board.columns]
    means = ["Means over the seeds, in %:", "", f"| attention | {' | '.join(columns)} |"]
    means.append("| --- |" + " ---: |" * len(columns))
    for title in FAMILY:
        rows = [row for row in tables[0].rows if row.name.rpartition(", seed")[0] == title]
        assert all(cell.value is not None for row in rows for cell in row.cells), f"{title}: remove {folder}/results"
        values = [[100 * (cell.value or 0.0) for cell in row.cells] for row in rows]
        spans = [f"{sum(v) / len(v):.1f} ({min(v):.1f} to {max(v):.1f})" for v in zip(*values, strict=True)]
        means.append(f"| {title} | {' | '.join(spans)} |")
    head = HEAD.format(seeds=len(seeds), count=LIMIT, recipe=Call.parse(recipe("S")), means="\n".join(means))
    text = head + "\n" + render(tables, "markdown")
    (ROOT / "leaderboards" / "attention-family.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
