"""Models of Hugging Face's transformers, as ``huggingface/<folder or name>``, where transformers is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from robustkpca.errors import BadValue, Unusable
from robustkpca.models import huggingface_language
from robustkpca.preprocessing import Preprocessing

_INTERPOLATION = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # the numbers of Pillow, which configs carry


class ImageClassifier(nn.Module):
    """A classifier of transformers that maps images straight to logits."""

    preprocessing: Preprocessing

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(B, K)`` for images ``(B, C, H, W)``, normalised as `preprocessing` says."""
        logits: Tensor = self.network(pixel_values=images).logits
        return logits


def create(name: str, *, task: str = "images") -> nn.Module:
    """Load a classifier of images, or a causal language model, with its weights.

    Args:
        name: A folder with ``config.json`` and safetensors weights; or a name on the Hub, which transformers downloads or takes
            from its cache. Code that comes with a model is never run.
        task: ``images``, or ``language`` for a causal language model.

    Returns:
        A causal model as `robustkpca.models.huggingface_language.create` gives it, or
        the classifier with ``preprocessing``: resize, central crop, mean and deviation of its image processor.

    Raises:
        Unusable: If transformers is not installed, or the model cannot be had.
        BadValue: If its image processor does something that a preprocessing cannot say, or there is no such task.
    """
    if task == "language":
        return huggingface_language.create(name)
    if task != "images":
        raise BadValue(f"huggingface/{name}: task is {task!r}; expected images or language")
    try:
        from transformers import AutoImageProcessor, AutoModelForImageClassification
    except ImportError:
        raise Unusable("huggingface/ models need transformers: pip install transformers") from None
    source = str(Path(name)) if Path(name).is_dir() else name
    try:
        network = AutoModelForImageClassification.from_pretrained(source, trust_remote_code=False, use_safetensors=True)
        processor = AutoImageProcessor.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # hub, HTTP library and transformers each raise their own
        raise Unusable(
            f"huggingface/{name}: cannot be had ({' '.join(str(error).split())[:200]}); give a folder saved by"
            " save_pretrained, with safetensors"
        ) from error
    model = ImageClassifier(network)
    model.preprocessing = processor_preprocessing(processor.to_dict(), name)
    return model


def processor_preprocessing(described: dict[str, Any], name: str) -> Preprocessing:
    """Read the settings of an image processor.

    Args:
        described: Its ``preprocessor_config.json``.
        name: What to call the model in an error.

    Raises:
        BadValue: If images are not scaled to [0, 1], or not square.
    """
    factor = described.get("rescale_factor", 1 / 255)
    if described.get("do_rescale", True) is False or abs(factor * 255 - 1) > 1e-3:
        raise BadValue(f"huggingface/{name}: its processor scales images by {factor}; expected 1/255")
    normalised = described.get("do_normalize", True)
    mean, std = (tuple(described.get(key) or ()) if normalised else () for key in ("image_mean", "image_std"))
    crop = _side(described.get("crop_size"), name) if described.get("do_center_crop") else None
    size = described.get("size") if described.get("do_resize", True) else None
    exact = isinstance(size, dict) and "height" in size
    resize = _side(size, name)
    interpolation = _INTERPOLATION.get(described.get("resample", 3), "bicubic")
    return Preprocessing(resize, crop or (resize if exact else crop), interpolation, mean, std)


def _side(size: Any, name: str) -> int | None:
    """Return the one length that a size gives: of the shorter side, or of a square."""
    if size is None or isinstance(size, int):
        return size
    if "shortest_edge" in size:
        return int(size["shortest_edge"])
    if size.get("height") != size.get("width"):
        raise BadValue(f"huggingface/{name}: its processor makes images of {size}; expected squares")
    return int(size["height"])
