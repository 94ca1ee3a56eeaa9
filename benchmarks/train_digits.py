"""Train the three bundled digit models, equal in size and training, and write their weights.

    python benchmarks/train_digits.py [FOLDER]

FOLDER is the package's own ``robustkpca/models/bundled`` where none is given. Plain training on clean images: nothing here
makes a model robust. On one machine the weights are the same bit for bit each time; another kind of processor may round
differently.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from robustkpca.data.digits import digits
from robustkpca.models import create_model
from robustkpca.models.checkpoints import weights_digest
from robustkpca.preprocessing import Preprocessing

NAMES = ("softmax_vit_digits", "symvit_digits", "rpc_symvit_digits")
EPOCHS, BATCH, RATE, DECAY, SEED = 100, 64, 2e-3, 0.05, 0
BUNDLED = Path(__file__).parent.parent / "robustkpca" / "models" / "bundled"


def shifted(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move every image by -1, 0 or 1 pixels along both axes, filled with black."""
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    offsets = torch.randint(0, 3, (len(images), 2), generator=generator)
    return torch.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, offsets.tolist(), strict=True)])


def train(name: str, images: torch.Tensor, labels: torch.Tensor) -> torch.nn.Module:
    """Return a trained network; every name gets the same order of batches and the same shifts."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    network = create_model(name).train()
    steps = EPOCHS * -(-len(images) // BATCH)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps, pct_start=0.1)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images), generator=generator).split(BATCH):
            logits = network(shifted(images[rows], generator))
            loss = torch.nn.functional.cross_entropy(logits, labels[rows], label_smoothing=0.1)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
    return network.eval()


def main() -> None:
    """Train, report accuracy on the test split, and write weights with their provenance."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else BUNDLED
    folder.mkdir(parents=True, exist_ok=True)
    seen, unseen = digits("train"), digits("test")
    grey = Preprocessing(channels=1)
    images, labels = seen.read(range(len(seen.ids)), grey), torch.tensor(seen.labels)
    tests, answers = unseen.read(range(len(unseen.ids)), grey), torch.tensor(unseen.labels)
    provenance = {}
    for name in NAMES:
        network = train(name, images, labels)
        with torch.no_grad():
            accuracy = (network(tests).argmax(1) == answers).double().mean().item()
        save_file(
            {key: value.contiguous() for key, value in network.state_dict().items()}, folder / f"{name}.safetensors"
        )
        provenance[name] = {"weights": weights_digest(network), "test_accuracy": round(accuracy, 4)}
        print(f"{name}: {100 * accuracy:.2f} % of {len(answers)} test images", flush=True)
    recipe = {
        "epochs": EPOCHS,
        "batch": BATCH,
        "rate": RATE,
        "weight_decay": DECAY,
        "seed": SEED,
        "torch": torch.__version__,
    }
    text = json.dumps({"script": "benchmarks/train_digits.py", "recipe": recipe, "models": provenance}, indent=2)
    (folder / "provenance.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
