"""How far confidence can be believed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
from numpy.typing import ArrayLike, NDArray

from robustkpca.errors import BadValue

Array = NDArray[numpy.float64]
NORMS = ("l2", "l1", "max")


def calibration_error(
    confidence: ArrayLike, correct: ArrayLike, *, norm: str = "l2", bin_size: int = 100, every_bin: bool = True
) -> float:
    """Return the difference between confidence and accuracy over bins of equally many samples, from 0 to 1.

    Args:
        confidence: ``(N,)``, from 0 to 1.
        correct: ``(N,)``, 1 where the prediction is right, else 0.
        norm: ``l2`` for the root of the weighted mean of squares (RMS), ``l1`` for the weighted mean, ``max`` for the worst.
        bin_size: Samples of a bin; the last one takes what is left over as well.
        every_bin: Count the last bin too, where the most confident samples are. The published code leaves it out, so that
            fewer than two full bins give exactly 0 there.

    Raises:
        BadValue: If the arrays do not fit together, or there are fewer samples than ``bin_size``.

    Source:
        Hendrycks et al. 2019, arXiv:1812.04606, and their calib_err, which leaves out the last bin.
    """
    if norm not in NORMS:
        raise BadValue(f"norm {norm!r}: expected one of {', '.join(NORMS)}")
    sure, right = _pair(confidence, correct)
    if len(sure) < bin_size:
        raise BadValue(f"calibration error: {len(sure)} samples; expected at least {bin_size}, one bin")
    order = numpy.argsort(sure, kind="stable")
    starts = list(range(0, len(order) // bin_size * bin_size, bin_size))
    ends = [*starts[1:], len(order)]
    total = 0.0
    for start, end in list(zip(starts, ends, strict=True))[: None if every_bin else -1]:
        part = order[start:end]
        gap = abs(float(sure[part].mean() - right[part].mean()))
        weight = len(part) / len(order)
        total = max(total, gap) if norm == "max" else total + weight * gap ** (2 if norm == "l2" else 1)
    return float(total**0.5 if norm == "l2" else total)


def aurra(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the area under the response rate accuracy curve: the mean over k of the accuracy of the k most confident.

    Args:
        confidence: ``(N,)``; of equal ones the first come first.
        correct: ``(N,)``, 1 where the prediction is right, else 0.

    Source:
        Hendrycks et al. 2021, arXiv:1907.07174, section 4.
    """
    sure, right = _pair(confidence, correct)
    answered = right[numpy.argsort(-sure, kind="stable")]
    return float((numpy.cumsum(answered) / numpy.arange(1, len(answered) + 1)).mean())


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike, *, bins: int = 15) -> float:
    """Return the weighted mean difference between confidence and accuracy over bins of equal width, from 0 to 1.

    Args:
        confidence: ``(N,)``, from 0 to 1.
        correct: ``(N,)``, 1 where the prediction is right, else 0.
        bins: How many; each holds its upper end, the first one also 0.

    Source:
        Guo et al. 2017, arXiv:1706.04599, equation 3.
    """
    sure, right = _pair(confidence, correct)
    parts = [(float(part.mean()), sure[part].mean() - right[part].mean()) for part in _equal_widths(sure, bins)]
    return sum(weight * abs(float(gap)) for weight, gap in parts)


def _equal_widths(sure: Array, bins: int) -> Iterator[NDArray[numpy.bool_]]:
    place = numpy.clip(numpy.ceil(sure * bins) - 1, 0, bins - 1)
    for index in numpy.unique(place):
        yield place == index


def _pair(confidence: ArrayLike, correct: ArrayLike) -> tuple[Array, Array]:
    sure, right = numpy.asarray(confidence, numpy.float64), numpy.asarray(correct, numpy.float64)
    if sure.ndim != 1 or sure.shape != right.shape or not len(sure):
        raise BadValue(f"confidence {sure.shape} and correct {right.shape}: expected two arrays (N,) of one length")
    if not numpy.isfinite(sure).all():
        raise BadValue(f"confidence: {int((~numpy.isfinite(sure)).sum())} of {len(sure)} values are not finite")
    return sure, right
