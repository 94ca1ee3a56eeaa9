"""Any image classifier of torchvision, as ``torchvision/<name>``."""

from __future__ import annotations

from typing import Any

import torchvision
from torch import nn

from robustkpca.errors import BadValue, Unusable, unknown
from robustkpca.preprocessing import Preprocessing


def names() -> list[str]:
    """List the image classifiers of torchvision, sorted."""
    return sorted(torchvision.models.list_models(module=torchvision.models))


def create(name: str, **overrides: Any) -> nn.Module:
    """Build a model of torchvision.

    Args:
        name: A name of torchvision's classifiers.
        **overrides: Arguments of its builder, such as ``num_classes``; and ``weights``, the name of a set of weights such as
            ``DEFAULT`` or ``IMAGENET1K_V1``, which torchvision downloads or takes from its cache.

    Returns:
        The model with ``preprocessing``: that of its newest weights, or of those that were asked for.

    Raises:
        UnknownName: If torchvision has no such classifier or weights.
        BadValue: If torchvision refuses the arguments.
        Unusable: If the weights cannot be had.

    Source:
        pytorch/vision. Its auxiliary classifiers, which act in training only, are left out.
    """
    if name not in names():
        raise unknown("model", f"torchvision/{name}", [f"torchvision/{known}" for known in names()])
    choices = torchvision.models.get_model_weights(name)
    wanted = overrides.pop("weights", None)
    if wanted is not None and wanted not in choices.__members__:
        raise unknown(f"weights of torchvision/{name}", str(wanted), choices.__members__)
    if name in ("googlenet", "inception_v3") and wanted is None:
        overrides = {"aux_logits": False, "init_weights": True} | overrides
    try:
        model: nn.Module = torchvision.models.get_model(
            name, weights=None if wanted is None else choices[wanted], **overrides
        )
    except (TypeError, ValueError, AssertionError) as error:
        raise BadValue(f"torchvision/{name}: {' '.join(str(error).split())[:300]}") from error
    except Exception as error:  # the download and torch each raise their own
        raise Unusable(
            f"torchvision/{name}: the weights cannot be had ({' '.join(str(error).split())[:200]});"
            " give a file with --checkpoint, or leave weights out"
        ) from error
    described = choices["DEFAULT" if wanted is None else wanted].transforms()
    prepared = Preprocessing(
        described.resize_size[0],
        described.crop_size[0],
        described.interpolation.value,
        tuple(described.mean),
        tuple(described.std),
    )
    setattr(model, "preprocessing", prepared)  # noqa: B010 (nn.Module has no such attribute)
    return model
