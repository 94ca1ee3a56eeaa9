"""The contract of a model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustkpca.audit import check_model as check_outputs
from robustkpca.models.loading import load_model, wrap
from robustkpca.testing.trials import hold


def check_model(name: str | nn.Module, images: Tensor, *, classes: int | None = None) -> None:
    """Check that a model can be evaluated, and leaves no trace of it.

    Args:
        name: As for `robustkpca.load_model`, or a network.
        images: ``(N, C, H, W)``, float32, in [0, 1], at least 3 of them.
        classes: Classes of the data.

    Raises:
        UserError: If it cannot be evaluated at all, see `robustkpca.audit.check_model`.
        AssertionError: Naming what else does not hold.
    """
    model = load_model(name) if isinstance(name, str) else wrap(name)
    label = model.spec.label
    state, modes = torch.get_rng_state(), [module.training for module in model.network.modules()]
    flags = check_outputs(model, images, classes)
    hold(not flags, f"{label}: {flags}")
    with model.evaluating():
        whole, alone = model.logits(images), model.logits(images[1:2])
    hold(torch.allclose(whole[1:2], alone, atol=1e-5), f"{label}: the logits of an image depend on its batch")
    hold(torch.equal(torch.get_rng_state(), state), f"{label} draws from the global generator")
    hold([module.training for module in model.network.modules()] == modes, f"{label}: modes are not restored")
