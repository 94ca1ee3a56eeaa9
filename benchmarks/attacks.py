"""Compare the attacks of AutoAttack with those of the package pyautoattack: processor seconds and verdicts.

    python benchmarks/attacks.py [--budget linf:0.12] [--models robust,undefended] [--images 64] [--repeats 3]
    python benchmarks/attacks.py --budget linf:4/255 --models efficientnet_lite0 --data imagenet/val --images 8
    python benchmarks/attacks.py --budget linf:0.12 --models 'vit_digits(dim=96)' --checkpoint robust.safetensors

Both run in this process with the same networks, images, batch size and threads, in turn. ``robust`` is the adversarially
trained network of tests/golden/attacks, ``undefended`` a bundled one. Processor seconds are compared, which other processes
disturb less than seconds on the clock. A ratio of 0.5 means that ours needs half the time.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pyautoattack import AutoAttack
from safetensors.torch import load_file

from robustkpca import registry
from robustkpca.budget import Budget, Norm
from robustkpca.data import open_data
from robustkpca.data.digits import digits
from robustkpca.data.selection import selection
from robustkpca.draws import Draws
from robustkpca.judge import judge_attack
from robustkpca.models.classifier import TorchClassifier
from robustkpca.models.loading import load_model, wrap
from robustkpca.records import Verdict

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "attacks"
NAMES = {
    "apgd_ce": "apgd-ce",
    "apgd_dlr": "apgd-dlr",
    "apgd_t": "apgd-t",
    "fab": "fab",
    "fab_t": "fab-t",
    "square": "square",
}
STANDARD = ("apgd_ce", "apgd_t", "fab_t", "square")
OPTIONS = {"square": {"reach_edges": False}}
OPTIONS_L1 = {"apgd_ce": {"restarts": 5}, "apgd_dlr": {"restarts": 5}, "apgd_t": {"targets": 5}}  # its standard in L1
NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}
Outcome = tuple[torch.Tensor, float]


class Normalised(torch.nn.Module):
    """A classifier's network with its normalisation, as pyautoattack wants it."""

    def __init__(self, classifier: TorchClassifier) -> None:
        super().__init__()
        self.network = classifier.network
        self.normalise = classifier.normalise

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of [0, 1] images."""
        return self.network(self.normalise(images))


def model_and_images(
    name: str, count: int, data: str | None, checkpoint: str | None
) -> tuple[TorchClassifier, torch.Tensor, torch.Tensor]:
    """Return a classifier, images and labels."""
    if name == "robust":
        network = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3, padding=1),
            torch.nn.GELU(),
            torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
            torch.nn.GELU(),
            torch.nn.Flatten(),
            torch.nn.Linear(512, 64),
            torch.nn.GELU(),
            torch.nn.Linear(64, 10),
        )
        network.load_state_dict(load_file(GOLDEN / "cnn_state_dict.safetensors"))
        data = load_file(GOLDEN / "test_data_and_logits.safetensors")
        return wrap(network.eval(), batch_size=count), data["x"][:count], data["y"][:count]
    classifier = load_model("symvit_digits" if name == "undefended" else name, checkpoint, batch_size=count)
    classifier.network.eval()
    held = digits() if data is None else open_data(data)
    chosen = selection(held.ids, count)
    images = held.read(chosen, classifier.spec.preprocessing)
    return classifier, images, torch.tensor([held.labels[position] for position in chosen])


def ours(
    classifier: TorchClassifier,
    images: torch.Tensor,
    labels: torch.Tensor,
    budget: Budget,
    attacks: tuple[str, ...],
    seed: int,
) -> Outcome:
    """Return who survives all of these attacks, and the processor seconds."""
    start = time.process_time()
    standing = torch.arange(len(images))
    with classifier.evaluating():
        for name in attacks:
            if not len(standing):
                break
            draws = Draws.of([str(index) for index in standing.tolist()], seed=seed, threat=name)
            function: Callable[..., object] = registry.find("attacks", name).load()
            result = judge_attack(
                classifier,
                function,
                images[standing],
                labels[standing],
                budget=budget,
                draws=draws,
                **OPTIONS.get(name, {}),
                **(OPTIONS_L1.get(name, {}) if budget.norm is Norm.L1 else {}),
            )
            stays = torch.tensor([verdict is Verdict.SURVIVED for verdict in result.verdicts])
            standing = standing[stays]
    seconds = time.process_time() - start
    return torch.zeros(len(images), dtype=torch.bool).index_fill(0, standing, True), seconds


def theirs(
    network: torch.nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    budget: Budget,
    attacks: tuple[str, ...],
    seed: int,
) -> Outcome:
    """Return the same of pyautoattack, with the constants of its version ``standard``."""
    logging.getLogger("auto-attack").setLevel(logging.ERROR)
    official = AutoAttack(network, norm=NORMS[budget.norm.value], eps=budget.length, seed=seed, version="standard")
    official.verbose = False
    official.attacks_to_run = [NAMES[name] for name in attacks]
    start = time.process_time()
    found, _ = official.run_standard_evaluation(images, labels, batch_size=len(images))
    seconds = time.process_time() - start
    with torch.no_grad():
        return network(found).argmax(1) == labels, seconds


def main() -> None:
    """Print one line for each attack alone and for the standard sequence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="linf:0.12")
    parser.add_argument("--models", default="robust,undefended")
    parser.add_argument("--attacks", default="apgd_ce,apgd_dlr,apgd_t,fab,fab_t,square,standard")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", help="folder of images; the bundled digits where it is not given")
    parser.add_argument("--checkpoint", help="weights of the models that are named")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    budget = Budget.parse(options.budget)
    print("| model | attack | ours, s | pyautoattack, s | ratio | survivors, ours | theirs | verdicts that differ |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.models.split(","):
        classifier, images, labels = model_and_images(name, options.images, options.data, options.checkpoint)
        network = Normalised(classifier)
        for attack in options.attacks.split(","):
            attacks = STANDARD if attack == "standard" else (attack,)
            mine, other = [], []
            for seed in range(options.repeats):
                mine.append(ours(classifier, images, labels, budget, attacks, seed))
                other.append(theirs(network, images, labels, budget, attacks, seed))
            seconds = [statistics.median(seconds for _, seconds in outcomes) for outcomes in (mine, other)]
            survivors = ["/".join(str(int(stands.sum())) for stands, _ in outcomes) for outcomes in (mine, other)]
            differ = "/".join(str(int((a != b).sum())) for (a, _), (b, _) in zip(mine, other, strict=True))
            print(
                f"| {name} | {attack} | {seconds[0]:.2f} | {seconds[1]:.2f} | {seconds[0] / seconds[1]:.2f} "
                f"| {survivors[0]} | {survivors[1]} | {differ} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
