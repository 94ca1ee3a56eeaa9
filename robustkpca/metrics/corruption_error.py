"""Corruption error: errors beside those of AlexNet.

Source:
    Hendrycks and Dietterich 2019, arXiv:1903.12261, section 4.3 and the released code; AlexNet's errors are its top-1 errors,
    averaged over the five severities.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from robustkpca.errors import BadValue

ALEXNET = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.92264,
    "defocus_blur": 0.81988,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.79836,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.71784,
    "jpeg_compression": 0.6065,
}
"""Mean top-1 error of AlexNet on ImageNet-C, from 0 to 1."""
ALEXNET_CLEAN = 0.435
"""Top-1 error of AlexNet on the clean images, to the digits that the paper gives."""


def corruption_error(name: str, accuracies: Sequence[float]) -> float:
    """Return the mean error at the five severities over that of AlexNet; 1 is as bad as AlexNet.

    Args:
        name: One of the 15 corruptions.
        accuracies: Top-1 accuracy at severities 1 to 5, from 0 to 1.
    """
    return _error(name, accuracies) / ALEXNET[name]


def relative_corruption_error(name: str, accuracies: Sequence[float], clean: float) -> float:
    """Return how much the error grows over that on clean images, beside AlexNet's growth.

    Args:
        name: One of the 15 corruptions.
        accuracies: Top-1 accuracy at severities 1 to 5, from 0 to 1.
        clean: Top-1 accuracy on clean images, from 0 to 1.
    """
    return (_error(name, accuracies) - (1 - clean)) / (ALEXNET[name] - ALEXNET_CLEAN)


def mean_corruption_error(accuracies: Mapping[str, Sequence[float]]) -> float:
    """Return the mean of the 15 corruption errors (mCE).

    Args:
        accuracies: For every corruption its accuracies at severities 1 to 5, from 0 to 1.

    Raises:
        BadValue: Naming the corruption that is missing, unknown, or lacks a severity.
    """
    refuse_incomplete(accuracies)
    return sum(corruption_error(name, accuracies[name]) for name in ALEXNET) / len(ALEXNET)


def mean_relative_corruption_error(accuracies: Mapping[str, Sequence[float]], clean: float) -> float:
    """Return the mean of the 15 relative corruption errors.

    Args:
        accuracies: For every corruption its accuracies at severities 1 to 5, from 0 to 1.
        clean: Top-1 accuracy on clean images, from 0 to 1.

    Raises:
        BadValue: Naming the corruption that is missing, unknown, or lacks a severity.
    """
    refuse_incomplete(accuracies)
    return sum(relative_corruption_error(name, accuracies[name], clean) for name in ALEXNET) / len(ALEXNET)


def refuse_incomplete(names: Collection[str]) -> None:
    """Refuse anything but the 15 corruptions.

    Args:
        names: Of corruptions.

    Raises:
        BadValue: Naming what is missing or unknown.
    """
    missing = [name for name in ALEXNET if name not in names]
    strange = sorted(set(names) - set(ALEXNET))
    if missing or strange:
        problem = f"{', '.join(missing)} missing" if missing else f"no error of AlexNet for {', '.join(strange)}"
        raise BadValue(f"mCE is the mean over 15 corruptions: {problem}")


def _error(name: str, accuracies: Sequence[float]) -> float:
    if name not in ALEXNET:
        raise BadValue(f"corruption error: no error of AlexNet for {name!r}; it is known for {', '.join(ALEXNET)}")
    if len(accuracies) != 5 or not all(0 <= accuracy <= 1 for accuracy in accuracies):
        raise BadValue(f"{name}: accuracies {list(accuracies)}; expected five from 0 to 1, for severities 1 to 5")
    return 1 - sum(accuracies) / 5
