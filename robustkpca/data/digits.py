"""The bundled data: handwritten digits, 8x8 pixels, that scikit-learn carries with it."""

from __future__ import annotations

from types import MappingProxyType

import numpy

from robustkpca.data.arrays import ArrayImages, array_data
from robustkpca.errors import BadValue

DIGITS = MappingProxyType({"digits": "test", "digits/test": "test", "digits/train": "train"})
TRAIN_SIZE = 1257  # of 1797, in scikit-learn's order
DEEPEST = 16  # the value of a full pixel


def digits(split: str = "test", *, classes: int | None = None) -> ArrayImages:
    """Return the handwritten digits of scikit-learn as a data set with one channel.

    Args:
        split: ``test`` for the last 540 of 1797 samples, ``train`` for the first 1257.
        classes: The number of classes wanted; anything but 10 or ``None`` is refused.

    Returns:
        A data set with ids ``digits/0000`` to ``digits/1796``, the same in both splits' numbering.

    Raises:
        BadValue: If the split is another one, or other classes are wanted.

    Source:
        Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits, UCI; as in `sklearn.datasets.load_digits`.
    """
    if split not in ("train", "test"):
        raise BadValue(f"digits split {split!r}: expected 'test' or 'train'")
    if classes not in (None, 10):
        raise BadValue(f"data 'digits' have 10 classes, but {classes} are wanted; is this the model for these data?")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = slice(0, TRAIN_SIZE) if split == "train" else slice(TRAIN_SIZE, None)
    ids = [f"digits/{position:04d}" for position in range(len(bunch.target))]
    return array_data(
        (bunch.images[chosen] / DEEPEST).astype(numpy.float32),
        bunch.target[chosen],
        name="digits" if split == "test" else "digits/train",
        layout="digits",
        classes=10,
        ids=ids[chosen],
    )
