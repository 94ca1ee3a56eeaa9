"""Measure whether an image's logits and gradient keep their bits whatever the number of images beside it.

    python benchmarks/batch_invariance.py [--threads T] [--device D]

`robustkpca.models.classifier.ROWS` rests on this: every pass holds a multiple of eight images. Each number of rows is
compared with the largest; the images stand at other places in each pass. A row of the table says for how many numbers of
rows every image kept its bits, and how many of the images of the others did.
"""

from __future__ import annotations

import argparse
import platform

import torch
from torch import Tensor, nn

from robustkpca.models import create_model

EIGHTS = (8, 16, 24, 32, 40)
OTHERS = (1, 2, 3, 4, 5, 7, 12, 17, 31, 33)
MOST = 48


def networks() -> dict[str, tuple[nn.Module, int, int]]:
    """Return each network with the channels and the side of its images."""
    torch.manual_seed(0)
    cnn = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.GELU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(32 * 16 * 16, 64),
        nn.GELU(),
        nn.Linear(64, 10),
    )
    return {
        "CNN, 32 px": (cnn, 3, 32),
        "timm/resnet18, 32 px": (create_model("timm/resnet18", num_classes=10), 3, 32),
        "softmax_vit_digits, 8 px": (create_model("softmax_vit_digits"), 1, 8),
        "rpc_symvit_digits, 8 px": (create_model("rpc_symvit_digits"), 1, 8),
        "timm/vit_tiny_patch16_224, 64 px": (create_model("timm/vit_tiny_patch16_224", img_size=64), 3, 64),
    }


def answers(network: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and gradients of the cross-entropy against class 0."""
    images = images.detach().requires_grad_(True)
    logits = network(images)
    labels = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(logits, labels, reduction="sum"), images)
    return logits.detach(), gradient


def kept(network: nn.Module, images: Tensor, rows: int, whole: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Return the share of images whose logits, and whose gradients, have the bits they have in the largest pass."""
    places = torch.randperm(len(images), generator=torch.Generator().manual_seed(rows)).to(images.device)[:rows]
    equal = [
        (a == b[places]).flatten(1).all(1).double().mean().item()
        for a, b in zip(answers(network, images[places]), whole, strict=True)
    ]
    return equal[0], equal[1]


def main() -> None:
    """Print a table of all networks and both precisions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    name = torch.cuda.get_device_name() if arguments.device != "cpu" else torch.backends.cpu.get_cpu_capability()
    print(f"{platform.machine()}, {name}, {arguments.threads} threads, torch {torch.__version__}\n")
    print("| network | dtype | multiples of 8: logits | gradients | other rows: logits | gradients |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for title, (network, channels, size) in networks().items():
        for dtype in (torch.float32, torch.bfloat16):
            network = network.eval().to(arguments.device, dtype)
            images = torch.rand(MOST, channels, size, size, generator=torch.Generator().manual_seed(0))
            images = images.to(arguments.device, dtype)
            whole = answers(network, images)
            cells = []
            for counts, share in ((EIGHTS, False), (OTHERS, True)):
                found = [kept(network, images, rows, whole) for rows in counts]
                for kind in (0, 1):
                    values = [one[kind] for one in found]
                    good = sum(value == 1 for value in values)
                    text = f"{good} of {len(counts)}"
                    cells.append(f"{text} ({100 * sum(values) / len(values):.0f} % of images)" if share else text)
            print(f"| {title} | {str(dtype).removeprefix('torch.')} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
