"""Train the three bundled language models, equal in size and training, and write their weights.

    python benchmarks/train_novel.py [FOLDER]

FOLDER is the package's own ``robustkpca/models/bundled`` where none is given. The text is the first twenty chapters of the
bundled novel; the weights of the epoch with the best perplexity on the next chapter are kept. On one machine they are the
same bit for bit each time.
"""

from __future__ import annotations

import copy
import json
import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from robustkpca.data.novel import novel
from robustkpca.data.vocabulary import END, UNKNOWN, Vocabulary
from robustkpca.models import create_model
from robustkpca.models.checkpoints import weights_digest

NAMES = ("softmax_lm_novel", "symlm_novel", "rpc_symlm_novel")
EPOCHS, STREAMS, WINDOW, RATE, DECAY, SEED = 30, 16, 64, 3e-3, 0.1, 0
BUNDLED = Path(__file__).parent.parent / "robustkpca" / "models" / "bundled"


def vocabulary(lines: tuple[str, ...]) -> Vocabulary:
    """Return the words that occur at least twice, and the word that `word-swap` puts in, as WikiText-103 has it too."""
    seen: dict[str, int] = {}
    for line in lines:
        for word in line.split():
            seen[word] = seen.get(word, 0) + 1
    frequent = [word for word in Vocabulary.counted([*lines, UNKNOWN]).words if seen.get(word, 0) > 1]
    return Vocabulary((END, UNKNOWN, *frequent, "AAA"))


def stream(words: Vocabulary, lines: tuple[str, ...]) -> torch.Tensor:
    """Return all tokens of a text, one after the other."""
    return torch.tensor([number for line in lines for number in words.encode(line)])


def mean_loss(network: torch.nn.Module, tokens: torch.Tensor) -> float:
    """Return nats per token over windows side by side; the benchmark lets them overlap."""
    starts = range(0, len(tokens) - WINDOW - 1, WINDOW)
    windows = torch.stack([tokens[start : start + WINDOW + 1] for start in starts])
    with torch.no_grad():
        return float(network.eval()(windows[:, :-1], windows[:, 1:]).double().mean())


def train(name: str, seen: torch.Tensor, unseen: torch.Tensor) -> torch.nn.Module:
    """Return a trained network; every name gets the same order of windows."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    network = create_model(name)
    steps = (len(seen) - WINDOW - 1) // (WINDOW * STREAMS)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=EPOCHS * steps, pct_start=0.1)
    best, kept = math.inf, copy.deepcopy(network.state_dict())
    for epoch in range(EPOCHS):
        network.train()
        shift = int(torch.randint(0, WINDOW, (1,), generator=generator))
        starts = torch.arange(shift, len(seen) - WINDOW - 1, WINDOW)
        order = starts[torch.randperm(len(starts), generator=generator)].split(STREAMS)
        for rows in order[:steps]:
            windows = torch.stack([seen[start : start + WINDOW + 1] for start in rows.tolist()])
            loss = network(windows[:, :-1], windows[:, 1:]).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.25)
            optimiser.step()
            if schedule.last_epoch < schedule.total_steps - 1:
                schedule.step()
        found = mean_loss(network, unseen)
        print(f"{name}: epoch {epoch + 1}, perplexity {math.exp(found):.1f}", file=sys.stderr, flush=True)
        if found < best:
            best, kept = found, copy.deepcopy(network.state_dict())
    network.load_state_dict(kept)
    return network.eval()


def main() -> None:
    """Train, report perplexity on the test chapters, and write weights with their provenance."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else BUNDLED
    folder.mkdir(parents=True, exist_ok=True)
    words = vocabulary(novel("train"))
    lines = ",\n".join(json.dumps(word, ensure_ascii=False) for word in words.words)
    (BUNDLED / "novel_vocabulary.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    parts = {split: stream(words, novel(split)) for split in ("train", "validation", "test")}
    provenance = {}
    for name in NAMES:
        network = train(name, parts["train"], parts["validation"])
        perplexity = math.exp(mean_loss(network, parts["test"]))
        tied = {key: value for key, value in network.state_dict().items() if key != "crit.out_layers.0.weight"}
        save_file({key: value.contiguous() for key, value in tied.items()}, folder / f"{name}.safetensors")
        provenance[name] = {"weights": weights_digest(network), "test_perplexity_side_by_side": round(perplexity, 2)}
        print(f"{name}: {perplexity:.2f} on {len(parts['test']) - 1} tokens", flush=True)
    recipe = {
        "epochs": EPOCHS,
        "streams": STREAMS,
        "window": WINDOW,
        "rate": RATE,
        "weight_decay": DECAY,
        "seed": SEED,
        "words": len(words),
        "torch": torch.__version__,
    }
    text = json.dumps({"script": "benchmarks/train_novel.py", "recipe": recipe, "models": provenance}, indent=2)
    (folder / "novel.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
