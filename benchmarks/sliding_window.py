"""Perplexity by a window that moves on by one token: many windows a pass against one pass for each position.

    python benchmarks/sliding_window.py TEXT [--model NAME] [--context N] [--positions N]

Both score the same places of the text. The naive way is one window a pass with all of its losses, of which the last one counts.
Prints processor milliseconds per place, their ratio, the largest difference of a loss, and that of the perplexities.
"""

from __future__ import annotations

import argparse
import math
import time

import torch

from robustkpca.data.text import open_text
from robustkpca.models.language_model import LanguageModel, sliding_losses
from robustkpca.models.loading import load_model


def one_by_one(model: LanguageModel, text: torch.Tensor, places: list[int], context: int) -> torch.Tensor:
    """Return the losses of some places, one forward pass each."""
    losses = []
    with torch.no_grad():
        for place in places:
            window = text[None, place - context : place + 1].to(model.device)
            losses.append(model.network(window[:, :-1], window[:, 1:])[0, -1].double().cpu())
    return torch.stack(losses)


def main() -> None:
    """Measure and print one line of a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--model", default="symlm_novel")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--positions", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load_model(options.model, device=options.device, dtype=options.dtype, batch_size=options.batch_size)
    model, lines = LanguageModel(loaded), open_text(options.text).lines
    text = torch.tensor([token for line in lines for token in model.words.encode(line)])
    places = list(range(options.context + 1, min(len(text), options.context + 1 + options.positions)))
    with model.evaluating():
        sliding_losses(model, text, places[:64], context=options.context, stride=1)
        one_by_one(model, text, places[:16], options.context)
        clock = time.process_time()
        ours, _ = sliding_losses(model, text, places, context=options.context, stride=1)
        quick = (time.process_time() - clock) / len(places)
        clock = time.process_time()
        naive = one_by_one(model, text, places, options.context)
        slow = (time.process_time() - clock) / len(places)
    perplexities = [math.exp(float(losses.mean())) for losses in (ours, naive)]
    print(
        f"| {options.model} | {options.context} | {len(places)} | {1e3 * slow:.3f} | {1e3 * quick:.3f} | {slow / quick:.1f} "
        f"| {float((ours - naive).abs().max()):.1e} | {abs(perplexities[0] / perplexities[1] - 1):.1e} |"
    )


if __name__ == "__main__":
    main()
