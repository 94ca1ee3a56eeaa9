"""Kernel-PCA measures: values worked out by hand, identities of kernel PCA, and the controls that make them worth reading."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robustkpca.kernel_pca import (
    alignment,
    axes_of_values,
    centred_gram,
    eigenvectors,
    gamma_differences,
    pursuit_passes,
    reconstruction_error,
    squared_feature_norm,
    standardised,
    values_of_axes,
)
from robustkpca.models.pursuit import Pursuit
from tests.models.test_attention import heads_of_the_specification


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_errors_are_the_numbers_of_the_specification() -> None:
    keys, values, queries = heads_of_the_specification()
    found = reconstruction_error(standardised(queries), standardised(keys), values)
    assert found["published"].mean().item() == pytest.approx(4.61339119, abs=1e-8)
    assert found["published"].mean().log().item() == pytest.approx(1.52896320, abs=1e-8)
    assert found["error"].mean().item() == pytest.approx(0.71812909, abs=1e-8)
    assert found["phi"].mean().item() == pytest.approx(0.51171269, abs=1e-8)
    assert found["h"].mean().item() == pytest.approx(0.56919843, abs=1e-8)


def test_the_feature_norm_is_the_kernel_over_the_square_of_its_sum() -> None:
    queries, keys = normal(5, 4), normal(7, 4, seed=1)
    kernel = torch.exp(queries @ keys.T / 2)
    expected = torch.exp(queries.square().sum(-1) / 2) / kernel.sum(-1).square()
    torch.testing.assert_close(squared_feature_norm(queries, keys), expected)


def test_the_gram_matrix_is_centred_and_positive() -> None:
    gram = centred_gram(normal(2, 9, 4))
    torch.testing.assert_close(gram.sum(-1), torch.zeros(2, 9, dtype=torch.float64))
    assert torch.linalg.eigvalsh(gram).min() > -1e-12
    keys = normal(9, 4)
    kernel = torch.exp(keys @ keys.T / 2)
    features = kernel / kernel.sum(-1) / kernel.sum(-1)[:, None]
    middle = torch.eye(9, dtype=torch.float64) - 1 / 9
    torch.testing.assert_close(centred_gram(keys), middle @ features @ middle)


def test_large_keys_overflow_nothing() -> None:
    keys = 60 * normal(9, 4)
    assert centred_gram(keys).isfinite().all()
    found = reconstruction_error(keys, keys, normal(9, 4))
    assert all(found[name].isfinite().all() for name in ("phi", "h", "error"))


def test_only_the_relative_difference_tells_eigenvectors_from_random_axes() -> None:
    """As the specification found on 197 standard normal keys of width 64."""
    keys = normal(197, 64)
    gram = centred_gram(keys)
    eigenvalues, vectors = eigenvectors(gram, 64)
    random = torch.linalg.qr(normal(197, 64, seed=2)).Q
    absolute, relative = zip(*(gamma_differences(gram, axes) for axes in (vectors, random)), strict=True)
    assert eigenvalues[0].item() / 197 == pytest.approx(4.8e-6, rel=0.3)
    assert absolute[0] < 1e-15
    assert absolute[1].item() == pytest.approx(2.2e-6, rel=0.3)
    assert relative[0] < 1e-10
    assert 0.4 < relative[1] < 0.95


def test_values_built_by_kernel_pca_are_recognised() -> None:
    keys = normal(30, 8)
    gram = centred_gram(keys)
    _, vectors = eigenvectors(gram, 8)
    values = values_of_axes(keys, vectors)
    _, relative = gamma_differences(gram, axes_of_values(keys, values))
    assert relative < 1e-8
    same = alignment(values, values_of_axes(keys, vectors))
    assert same == pytest.approx({"cosine": 1, "optimal_cosine": 1, "linear_cka": 1, "kernel_cka": 1})


def test_matching_finds_a_permutation_and_cka_ignores_a_rotation() -> None:
    points = normal(12, 5)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    shuffled = alignment(points, points[order])
    assert shuffled["optimal_cosine"] == pytest.approx(1)
    assert shuffled["cosine"] < 0.9
    rotated = alignment(points, 3 * points @ torch.linalg.qr(normal(5, 5, seed=1)).Q)
    assert (rotated["linear_cka"], rotated["kernel_cka"]) == pytest.approx((1, 1))
    assert alignment(points, normal(12, 5, seed=3))["linear_cka"] < 0.9


def test_the_trace_of_a_pursuit_follows_its_definition() -> None:
    keys, values = normal(1, 2, 9, 4), normal(1, 2, 9, 4, seed=1)
    first, *_, last = pursuit_passes(keys, values, Pursuit(3, 1e4))
    output = torch.softmax(keys @ keys.mT / 2, -1) @ values
    expected = (keys - output).norm(dim=(-2, -1)) / keys.norm(dim=(-2, -1))
    torch.testing.assert_close(first["residual"], expected)
    assert first["sparsity"].tolist() == [[1.0, 1.0]]
    assert set(last["rank"].flatten().tolist()) <= {1.0, 2.0, 3.0, 4.0}
    assert not math.isnan(float(last["residual"].sum()))
