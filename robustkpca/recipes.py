"""How a model is trained, as a value and as text: ``digits(epochs=50,seed=1)``."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from robustkpca.calls import Call, complete
from robustkpca.errors import BadValue, unknown

AUGMENTATIONS = ("plain", "shift", "imagenet")


@dataclass(frozen=True)
class Recipe:
    """One way of training; every field is an argument of the text.

    Args:
        epochs: Passes over the data, without cool-down.
        batch_size: Images of one step.
        rate: Highest learning rate of AdamW.
        decay: Weight decay; not for vectors, positions and class tokens.
        warmup_epochs: Epochs in which the rate rises linearly from ``warmup_rate``.
        warmup_rate: First learning rate.
        least_rate: Learning rate at the end of the cosine, and during cool-down.
        cooldown_epochs: Epochs after the cosine.
        clip_norm: Longest gradient of one step; 0 for no limit.
        smoothing: Label smoothing, from 0 to below 1.
        mixup: Parameter of Mixup's beta distribution; 0 for none.
        cutmix: The same of CutMix; with both, one of them is drawn for each batch.
        augmentation: ``plain``, nothing; ``shift`` by -1, 0 or 1 pixels along both axes; or ``imagenet``, timm's random
            crop, flip, RandAugment and colour jitter.
        jitter: Strength of the colour jitter where RandAugment is not used; part of ``imagenet``.
        erasing: Probability of random erasing.
        repeats: How often a chosen image comes in an epoch, augmented anew each time; the epoch stays as long.
        ema: Decay of the averaged weights that are kept beside the others; 0 keeps none.
        seed: Of order, augmentation and initial weights.

    Raises:
        BadValue: If a value is out of range.

    Source:
        Optimiser, schedule, augmentation, Mixup, erasing and averages are timm's own.
    """

    epochs: int = 100
    batch_size: int = 64
    rate: float = 2e-3
    decay: float = 0.05
    warmup_epochs: int = 5
    warmup_rate: float = 1e-6
    least_rate: float = 1e-5
    cooldown_epochs: int = 0
    clip_norm: float = 1.0
    smoothing: float = 0.1
    mixup: float = 0.0
    cutmix: float = 0.0
    augmentation: str = "plain"
    jitter: float = 0.4
    erasing: float = 0.0
    repeats: int = 1
    ema: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "repeats"):
            if getattr(self, name) < 1:
                raise BadValue(f"{name} is {getattr(self, name)}; expected a whole number of at least 1")
        for name in ("rate", "decay", "warmup_epochs", "warmup_rate", "least_rate", "cooldown_epochs", "clip_norm"):
            if not getattr(self, name) >= 0:
                raise BadValue(f"{name} is {getattr(self, name)}; expected a number of at least 0")
        for name in ("smoothing", "erasing", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise BadValue(f"{name} is {getattr(self, name)}; expected a number in [0, 1)")
        for name in ("mixup", "cutmix", "jitter", "seed"):
            if not getattr(self, name) >= 0:
                raise BadValue(f"{name} is {getattr(self, name)}; expected a number of at least 0")
        if self.augmentation not in AUGMENTATIONS:
            raise BadValue(f"augmentation is {self.augmentation!r}; expected one of {', '.join(AUGMENTATIONS)}")

    @classmethod
    def parse(cls, text: str) -> tuple[str, Recipe]:
        """Read ``PRESET`` or ``PRESET(field=value,...)``.

        Returns:
            The canonical text, with every field, and the recipe.

        Raises:
            UnknownName: If there is no such preset or field.
            BadValue: If a value cannot be used.
        """
        call = Call.parse(text)
        if call.name not in PRESETS:
            raise unknown("recipe", call.name, PRESETS)
        full = complete(call, _signed(PRESETS[call.name]), "recipe")
        return str(full), cls(**{name: value for name, value in full.arguments.items()})  # type: ignore[arg-type]

    @property
    def total_epochs(self) -> int:
        """Epochs with cool-down."""
        return self.epochs + self.cooldown_epochs


DIGITS = Recipe(warmup_epochs=3, augmentation="shift")
DEIT = Recipe(
    epochs=300,
    batch_size=1024,
    rate=1e-3,
    cooldown_epochs=10,
    clip_norm=0.0,
    mixup=0.8,
    cutmix=1.0,
    augmentation="imagenet",
    erasing=0.25,
    repeats=3,
    ema=0.99996,
)
FAN = replace(DEIT, batch_size=512, rate=2e-3, least_rate=1e-6, repeats=1, ema=0.99992, seed=42)
PRESETS = {"digits": DIGITS, "deit": DEIT, "fan": FAN}
"""``deit`` is the kernel-PCA paper's for its vision transformers, ``fan`` its for RPC-FAN; drop path is the model's own."""


def _signed(recipe: Recipe) -> Any:
    """Return a function whose options are the fields of a recipe, with its values as defaults."""

    def preset(**options: Any) -> Recipe:
        return replace(recipe, **options)

    values = asdict(recipe)
    preset.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=values[field.name])
            for field in fields(recipe)
        ]
    )
    return preset
