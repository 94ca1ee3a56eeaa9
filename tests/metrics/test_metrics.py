"""Corruption error, calibration and detection: closed forms, then the recorded numbers of the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

from robustkpca.errors import BadValue
from robustkpca.metrics.calibration import aurra, calibration_error, expected_calibration_error
from robustkpca.metrics.corruption_error import (
    ALEXNET,
    ALEXNET_CLEAN,
    corruption_error,
    mean_corruption_error,
    mean_relative_corruption_error,
    relative_corruption_error,
)
from robustkpca.metrics.detection import detection

GOLDEN = Path(__file__).parent.parent / "golden" / "metrics"
INPUTS: dict[str, Any] = dict(numpy.load(GOLDEN / "inputs.npz"))
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
near = lambda value: pytest.approx(value, abs=1e-9, rel=0)  # noqa: E731
RANDOM = numpy.random.default_rng(0)


def test_alexnet_has_a_corruption_error_of_one() -> None:
    accuracies = {name: [1 - error] * 5 for name, error in ALEXNET.items()}
    assert mean_corruption_error(accuracies) == near(1)
    assert mean_relative_corruption_error(accuracies, 1 - ALEXNET_CLEAN) == near(1)


def test_a_model_that_loses_nothing_has_no_relative_error() -> None:
    accuracies = {name: [0.8] * 5 for name in ALEXNET}
    assert mean_relative_corruption_error(accuracies, 0.8) == near(0)


def test_an_mce_lacks_nothing() -> None:
    accuracies = {name: [0.5] * 5 for name in ALEXNET}
    with pytest.raises(BadValue, match="fog missing"):
        mean_corruption_error({name: five for name, five in accuracies.items() if name != "fog"})
    with pytest.raises(BadValue, match="no error of AlexNet for spatter"):
        mean_corruption_error(accuracies | {"spatter": [0.5] * 5})
    with pytest.raises(BadValue, match=r"fog: accuracies .*expected five from 0 to 1"):
        mean_corruption_error(accuracies | {"fog": [0.5] * 4})
    with pytest.raises(BadValue, match="expected five from 0 to 1"):
        corruption_error("fog", [50.0] * 5)


def test_the_mce_is_no_mean_error() -> None:
    """A user took the mean error of 61 % of ResNet-50 for its mCE of 76.7 %."""
    errors = [0.7, 0.73, 0.75, 0.61, 0.74, 0.61, 0.64, 0.67, 0.62, 0.54, 0.32, 0.61, 0.55, 0.55, 0.46]
    accuracies = {name: [1 - error] * 5 for name, error in zip(ALEXNET, errors, strict=True)}
    assert sum(errors) / 15 == pytest.approx(0.607, abs=0.01)
    assert mean_corruption_error(accuracies) == pytest.approx(0.767, abs=0.01)


def test_confidence_that_is_always_right_has_no_error() -> None:
    correct = numpy.repeat([0, 1], 200)
    assert calibration_error(correct, correct) == expected_calibration_error(correct, correct) == 0
    assert calibration_error(1 - correct, correct) == expected_calibration_error(1 - correct, correct) == near(1)


def test_the_published_form_does_not_see_the_most_confident() -> None:
    confidence = numpy.repeat([0.0, 1.0], 100) + numpy.arange(200) * 1e-9
    wrong_when_sure = numpy.zeros(200)
    assert calibration_error(confidence, wrong_when_sure, every_bin=False) < 1e-6
    assert calibration_error(confidence, wrong_when_sure) == pytest.approx(0.5**0.5, abs=1e-6)


def test_too_few_samples_are_no_bin() -> None:
    with pytest.raises(BadValue, match="60 samples; expected at least 100"):
        calibration_error(INPUTS["calib_n60.confidence"], INPUTS["calib_n60.correct"])


def test_random_scores_are_worth_their_base_rate() -> None:
    """Which class is positive decides: 10 % outliers give 10 %, or 90 % where the others are positive."""
    outliers, others = RANDOM.random(2000), RANDOM.random(18000)
    found = detection(outliers, others)
    assert found.aupr == pytest.approx(0.1, abs=0.01)
    assert detection(-others, -outliers).aupr == pytest.approx(0.9, abs=0.01)
    assert found.auroc == pytest.approx(0.5, abs=0.02)
    assert found.fpr == pytest.approx(0.95, abs=0.02)


def test_scores_that_separate_and_scores_that_are_all_the_same() -> None:
    best, none = detection([2.0, 3.0], [0.0, 1.0]), detection(numpy.full(50, 7.0), numpy.full(450, 7.0))
    assert (best.auroc, best.aupr, best.fpr) == (1, 1, 0)
    assert (none.auroc, none.aupr, none.fpr) == (0.5, 0.1, 1)


def test_scores_of_any_scale_are_taken() -> None:
    yes, no = RANDOM.normal(40.5, 1, 300).astype(numpy.float32), RANDOM.normal(39.5, 1, 300).astype(numpy.float32)
    assert detection(yes, no).auroc == near(detection(yes - 40, no - 40).auroc)
    assert detection(yes, no).auroc > 0.7
    with pytest.raises(BadValue, match="positive class"):
        detection([], no)
    with pytest.raises(BadValue, match="negative class"):
        detection(yes, [float("nan")])


@pytest.mark.parametrize("case", [name for name in EXPECTED if name.startswith("calib_")])
def test_calibration_is_that_of_the_reference(case: str) -> None:
    confidence, correct, wanted = INPUTS[f"{case}.confidence"], INPUTS[f"{case}.correct"], EXPECTED[case]
    assert aurra(confidence, correct) == near(wanted["aurra"])
    for p, norm in (("2", "l2"), ("1", "l1"), ("infty", "max")):
        for size in (100, 50, 37):
            value = wanted.get(f"calib_err_p{p}_beta{size}")
            if isinstance(value, float):
                made = calibration_error(confidence, correct, norm=norm, bin_size=size, every_bin=False)
                assert made == near(value), (norm, size)
    if "rms_calib_err_beta100_ALL_BINS_not_reference" in wanted:
        assert calibration_error(confidence, correct) == near(wanted["rms_calib_err_beta100_ALL_BINS_not_reference"])


@pytest.mark.parametrize("case", [name for name in EXPECTED if name.startswith("ood_") and name != "ood_msp"])
def test_detection_is_that_of_the_reference(case: str) -> None:
    yes, no, wanted = INPUTS[f"{case}.pos"], INPUTS[f"{case}.neg"], EXPECTED[case]
    for recall in (0.95, 0.9, 0.8):
        found = detection(yes, no, recall=recall)
        assert (found.auroc, found.aupr) == (near(wanted["auroc"]), near(wanted["aupr"]))
        assert found.fpr == near(wanted[f"fpr_at_recall_{recall}"])


def test_outliers_are_found_by_low_confidence() -> None:
    found = detection(-INPUTS["ood_msp.confidence_out"], -INPUTS["ood_msp.confidence_in"])
    wanted = EXPECTED["ood_msp"]
    assert (found.auroc, found.aupr) == (near(wanted["auroc"]), near(wanted["aupr"]))
    assert found.fpr == near(wanted["fpr_at_recall_0.95"])


@pytest.mark.parametrize("case", ["mce0", "mce1", "mce2"])
def test_corruption_errors_are_those_of_the_reference(case: str) -> None:
    wanted = EXPECTED[case]
    rows = zip(wanted["row_order"], INPUTS[f"{case}.accuracy_percent"] / 100, strict=True)
    accuracies = {name: row.tolist() for name, row in rows}
    relative, clean = wanted["relative_mCE_FORMULA_ONLY"], wanted["clean_accuracy_percent"] / 100
    for name, five in accuracies.items():
        assert 100 * corruption_error(name, five) == near(wanted["per_corruption_CE_percent"][name])
        assert 100 * relative_corruption_error(name, five, clean) == near(relative["per_corruption_percent"][name])
    assert 100 * mean_corruption_error(accuracies) == near(wanted["mCE_percent"])
    assert 100 * mean_relative_corruption_error(accuracies, clean) == near(relative["mean_percent"])
