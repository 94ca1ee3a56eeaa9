"""What `score` runs when it is not told: data, models and board that belong together."""

from __future__ import annotations

from dataclasses import dataclass

from robustkpca import registry
from robustkpca.registry import Entry


@dataclass(frozen=True)
class Benchmark:
    """Data with the models and the board that are shown on it.

    Args:
        name: As in the registry.
        data: What `robustkpca.data.open_data` opens; empty where the user has to give a folder.
        models: Scored where the user names none.
        board: Its threats are run where the user names none.
        task: What is measured.
        classes: How many the data must have; ``None`` where that is known of the data or up to the user.
    """

    name: str
    data: str
    models: tuple[str, ...]
    board: str
    task: str = "classification"
    classes: int | None = None


DIGITS = Benchmark("digits", "digits", ("softmax_vit_digits", "symvit_digits", "rpc_symvit_digits"), "quick")
IMAGENET = Benchmark("imagenet", "", (), "linf", classes=1000)
CIFAR10 = Benchmark("cifar10", "", (), "linf", classes=10)
LANGUAGE = Benchmark(
    "language",
    "novel:context=64,stride=4",
    ("softmax_lm_novel", "symlm_novel", "rpc_symlm_novel"),
    "language",
    task="language",
)
SENTENCES = Benchmark("sentences", "", (), "sentences", task="sentences")

CATALOGUE = {
    "digits": Entry(
        "robustkpca.benchmarks:DIGITS",
        "540 handwritten digits of 8 x 8 pixels with three bundled models; nothing to download",
        "Alpaydin and Kaynak 1998, UCI; as shipped by scikit-learn",
        ("images", "bundled"),
    ),
    "imagenet": Entry(
        "robustkpca.benchmarks:IMAGENET",
        "ImageNet validation photos in folders named by wnid, also when only some are there; needs --data",
        "Russakovsky et al. 2015",
        ("images",),
    ),
    "cifar10": Entry(
        "robustkpca.benchmarks:CIFAR10",
        "CIFAR-10 test images in class folders or as npy/npz; needs --data",
        "Krizhevsky 2009",
        ("images",),
    ),
    "language": Entry(
        "robustkpca.benchmarks:LANGUAGE",
        "the last three chapters of a novel with three bundled language models, or a text of yours with --data",
        "Austen 1817, in the public domain; as in the R package janeaustenr",
        ("text", "bundled"),
    ),
    "sentences": Entry(
        "robustkpca.benchmarks:SENTENCES",
        "labelled sentences, one a line with the class in front, as SST-5 lies; needs --data",
        "Socher et al. 2013",
        ("text",),
    ),
}


def find_benchmark(name: str) -> Benchmark:
    """Return a registered benchmark.

    Raises:
        UnknownName: If there is none of that name.
    """
    return registry.find("benchmarks", name).value(Benchmark)
