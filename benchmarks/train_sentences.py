"""Train a small classifier of sentences with softmax and with RPC attention, and write weights and vocabulary.

    python benchmarks/train_sentences.py TRAIN FOLDER

TRAIN is a file of labelled sentences such as SST-5's ``stsa.fine.train``; its last tenth chooses the epoch. Prints the
commands that score what was trained.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from pathlib import Path

import torch

from robustkpca.data.sentences import open_sentences
from robustkpca.data.vocabulary import END, UNKNOWN, Vocabulary
from robustkpca.models import create_model

EPOCHS, BATCH, RATE, DECAY, SEED = 10, 32, 1e-3, 0.05, 0
ATTENTIONS = {"softmax": "", "rpc": ",layers=0"}


def batches(encoded: list[list[int]], rows: list[int], generator: torch.Generator) -> list[list[int]]:
    """Return rows of one length each, in a random order."""
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(len(encoded[row]), []).append(row)
    parts = []
    for group in groups.values():
        order = [group[place] for place in torch.randperm(len(group), generator=generator).tolist()]
        parts += [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return [parts[place] for place in torch.randperm(len(parts), generator=generator).tolist()]


def main() -> None:
    """Train both, and write them."""
    torch.set_num_threads(1)
    source, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    data = open_sentences(source)
    counts = Counter(word for line in data.lines for word in line.split())
    words = Vocabulary((END, UNKNOWN, *(word for word, count in counts.most_common() if count > 1)))
    (folder / "words.txt").write_text("\n".join(words.words) + "\n", encoding="utf-8")
    encoded, labels = [words.encode(line) for line in data.lines], torch.tensor(data.labels)
    seen, unseen = list(range(len(encoded) * 9 // 10)), list(range(len(encoded) * 9 // 10, len(encoded)))
    for attention, options in ATTENTIONS.items():
        torch.manual_seed(SEED)
        generator = torch.Generator().manual_seed(SEED)
        known = f"vocabulary={folder / 'words.txt'},num_classes={data.spec.classes}"
        name = f"sentence_transformer(attention={attention}{options},{known})"
        network = create_model(name)
        optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
        best, kept = -1.0, network.state_dict()
        for _ in range(EPOCHS):
            network.train()
            for rows in batches(encoded, seen, generator):
                tokens = torch.tensor([encoded[row] for row in rows])
                gone = (torch.rand(tokens.shape, generator=generator) < 0.1) & (tokens != 0)
                loss = torch.nn.functional.cross_entropy(network(tokens.masked_fill(gone, 1)), labels[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            network.eval()
            with torch.no_grad():
                right = sum(
                    int((network(torch.tensor([encoded[row] for row in rows])).argmax(1) == labels[rows]).sum())
                    for rows in batches(encoded, unseen, torch.Generator().manual_seed(0))
                )
            if right / len(unseen) > best:
                best, kept = right / len(unseen), copy.deepcopy(network.state_dict())
        torch.save({"model": kept}, folder / f"{attention}.pth")
        print(
            f"{100 * best:.1f} % of the held-out tenth; robustkpca score '{name}' --checkpoint {folder / attention}.pth "
            f"--benchmark sentences --data FILE",
            flush=True,
        )


if __name__ == "__main__":
    main()
