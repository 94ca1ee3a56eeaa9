"""What happens to a picture between its file and the network; it travels with the model and is printed with it.

The geometric part (resize, crop) is applied when data are read. The affine part (mean, std) stays inside the
`Classifier`, so that every budget is measured in [0, 1] pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robustkpca.calls import Call, Value
from robustkpca.errors import BadValue

if TYPE_CHECKING:  # annotations only: the command line must start without importing these
    from PIL.Image import Image
    from torch import Tensor

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of one model.

    Args:
        resize: Length of the shorter side after resizing, in pixels; ``None`` leaves the size alone.
        crop: Side of the central square that is kept, in pixels; ``None`` keeps everything.
        interpolation: One of `INTERPOLATIONS`, used by ``resize`` (Pillow's filters, with antialiasing).
        mean: Subtracted per channel, in [0, 1] pixels; empty for nothing.
        std: Divided by per channel; empty for nothing.
        channels: 3 converts images to RGB, 1 to greyscale.
    """

    resize: int | None = None
    crop: int | None = None
    interpolation: str = "bicubic"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    channels: int = 3

    def __post_init__(self) -> None:
        if self.interpolation not in INTERPOLATIONS:
            raise BadValue(f"interpolation {self.interpolation!r}: expected one of {', '.join(INTERPOLATIONS)}")
        for name in ("resize", "crop"):
            size = getattr(self, name)
            if size is not None and (not isinstance(size, int) or size < 1):
                raise BadValue(f"preprocessing {name} is {size!r}; expected a number of pixels or none")
        if self.channels not in (1, 3):
            raise BadValue(f"preprocessing channels is {self.channels!r}; expected 1 or 3")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if not isinstance(values, tuple) or len(values) not in (0, self.channels):
                raise BadValue(
                    f"preprocessing {name} is {values!r}; expected {self.channels} numbers such as [0.5,0.5,0.5]"
                )
        if len(self.mean) != len(self.std) or any(value <= 0 for value in self.std):
            raise BadValue("preprocessing mean and std must come together, and std must be positive")
        if not all(math.isfinite(value) for value in (*self.mean, *self.std)):
            raise BadValue(f"preprocessing mean is {self.mean!r} and std {self.std!r}; expected finite numbers")

    @classmethod
    def parse(cls, text: str) -> Preprocessing:
        """Read ``preprocessing(crop=224,resize=256,mean=[...],std=[...])``; the name may be left out.

        Raises:
            BadValue: If the text has another form or a value is out of range.
        """
        return cls(**cls.fields(text))

    @classmethod
    def fields(cls, text: str) -> dict[str, Any]:
        """Return the fields that a text names, to replace some of another preprocessing.

        Raises:
            BadValue: If the text has another form or names an unknown field.
        """
        text = text.strip()
        call = Call.parse(text if "(" in text else f"preprocessing({text})")
        known = {"resize", "crop", "interpolation", "mean", "std", "channels"}
        wrong = set(call.arguments) - known
        if call.name != "preprocessing" or wrong:
            raise BadValue(
                f"preprocessing {text!r}: expected name=value pairs with names among {', '.join(sorted(known))}"
            )
        arguments: dict[str, Any] = dict(call.arguments)
        for name in ("mean", "std"):
            if name in arguments:
                values = arguments[name] if isinstance(arguments[name], tuple) else (arguments[name],)
                try:
                    arguments[name] = tuple(float(value) for value in values)
                except (TypeError, ValueError, OverflowError):
                    raise BadValue(
                        f"preprocessing {name} is {values!r}; expected numbers such as [0.5,0.5,0.5]"
                    ) from None
        return arguments

    def __str__(self) -> str:
        values: dict[str, Value] = {"channels": self.channels, "crop": self.crop, "resize": self.resize}
        if self.resize is not None:
            values["interpolation"] = self.interpolation
        if self.mean:
            values |= {"mean": self.mean, "std": self.std}
        return str(Call("preprocessing", values))

    def apply(self, image: Image) -> Tensor:
        """Turn a picture into a tensor ``(C, H, W)``, uint8.

        Raises:
            BadValue: If the picture is smaller than the crop.
        """
        import numpy
        import torch
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms import functional as transform

        image = image.convert("RGB" if self.channels == 3 else "L")
        if self.resize is not None:
            image = transform.resize(image, [self.resize], InterpolationMode(self.interpolation))
        if self.crop is not None:
            if min(image.size) < self.crop:
                raise BadValue(f"image is {image.size[0]}x{image.size[1]}, smaller than the crop of {self.crop} pixels")
            image = transform.center_crop(image, [self.crop, self.crop])
        pixels = torch.from_numpy(numpy.array(image, dtype=numpy.uint8))
        return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()
