"""How well scores tell two kinds of samples apart. The positive class is said by the caller; for outliers it is them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from numpy.typing import ArrayLike, NDArray

from robustkpca.errors import BadValue


@dataclass(frozen=True)
class Detection:
    """What the scores of positives and negatives give; all from 0 to 1.

    Args:
        auroc: Area under the ROC curve, ties counted half. 0.5 by chance.
        aupr: Average precision of the positive class. By chance the share of positives.
        fpr: False positives at the threshold whose recall is nearest to the wanted one.
    """

    auroc: float
    aupr: float
    fpr: float


def detection(positive: ArrayLike, negative: ArrayLike, *, recall: float = 0.95) -> Detection:
    """Measure how much higher the scores of positives are.

    Args:
        positive: ``(P,)``, scores of the positive class, of any scale. For outliers by confidence: minus the confidence of
            the outliers.
        negative: ``(N,)``, scores of the others.
        recall: Where false positives are counted. Of two thresholds equally near to it the lower counts, so that scores
            that are all the same give 1.

    Raises:
        BadValue: If one of them is empty or not finite.

    Source:
        Hendrycks and Gimpel 2017, arXiv:1610.02136; areas by scikit-learn, the last number as in the authors' code.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    yes, no = _scores("positive", positive), _scores("negative", negative)
    labels = numpy.concatenate([numpy.ones(len(yes)), numpy.zeros(len(no))])
    scores = numpy.concatenate([yes, no])
    return Detection(
        float(roc_auc_score(labels, scores)),
        float(average_precision_score(labels, scores)),
        _false_positives(labels, scores, recall),
    )


def _false_positives(labels: NDArray[numpy.float64], scores: NDArray[numpy.float64], wanted: float) -> float:
    order = numpy.argsort(-scores, kind="stable")
    labels, scores = labels[order], scores[order]
    last = numpy.append(numpy.flatnonzero(numpy.diff(scores)), len(scores) - 1)  # of each score
    hits = numpy.cumsum(labels)[last]
    false = 1 + last - hits
    reached = hits.searchsorted(hits[-1])  # thresholds below full recall add false positives alone
    recalls = numpy.append(hits[reached::-1] / hits[-1], 1.0)
    counts = numpy.append(false[reached::-1], 0)
    return float(counts[numpy.argmin(numpy.abs(recalls - wanted))] / (len(labels) - hits[-1]))


def _scores(name: str, values: ArrayLike) -> NDArray[numpy.float64]:
    scores = numpy.asarray(values, numpy.float64)
    if scores.ndim != 1 or not len(scores) or not numpy.isfinite(scores).all():
        raise BadValue(
            f"scores of the {name} class {scores.shape}: expected a finite array (N,) with at least one value"
        )
    return scores
