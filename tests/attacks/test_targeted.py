"""Attacks towards a certain class: which class, whether it is reached, and that no other mistake passes for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from robustkpca.attacks.targeted import RULES, cw_t, fgsm_t, pgd_t
from robustkpca.budget import Budget
from robustkpca.errors import BadValue, UserError
from robustkpca.evaluation import attack
from robustkpca.judge import judge_attack
from robustkpca.records import Verdict

ATTACKS = [
    pytest.param(fgsm_t, "l2:1", {}, id="fgsm_t"),
    pytest.param(pgd_t, "l2:1", {"steps": 10}, id="pgd_t"),
    pytest.param(cw_t, "l2:1", {"steps": 60, "rounds": 3}, id="cw_t"),
]


def test_the_wanted_class_follows_the_rule() -> None:
    logits, labels = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 9.0]]), torch.tensor([0, 1])
    chosen = {name: rule(logits, labels).tolist() for name, rule in RULES.items()}
    assert chosen == {"second": [2, 2], "least-likely": [1, 0], "next": [1, 2]}


@pytest.mark.parametrize("target", list(RULES))
@pytest.mark.parametrize(("function", "text", "options"), ATTACKS)
def test_an_exact_success_is_of_the_wanted_class(
    function: Callable[..., Any], text: str, options: dict[str, Any], target: str, robust: Any, streams: Any
) -> None:
    images, labels = robust.images[:16], robust.labels[:16]
    wanted = RULES[target](robust.model.logits(images), labels)
    result = judge_attack(
        robust.model,
        function,
        images,
        labels,
        budget=Budget.parse(text),
        draws=streams(16),
        target=target,
        exact=True,
        **options,
    )
    assert not any(result.details)
    broken = torch.tensor([verdict is Verdict.BROKEN for verdict in result.verdicts])
    assert torch.equal(robust.model.logits(result.images).argmax(1)[broken], wanted[broken])
    unchanged = (result.images == images).flatten(1).all(1)
    assert bool(unchanged[~broken].all())
    if target == "second":
        assert bool(broken.any())


@pytest.mark.parametrize(("function", "text", "options"), ATTACKS)
def test_the_wanted_class_gains(
    function: Callable[..., Any], text: str, options: dict[str, Any], robust: Any, streams: Any, candidates: Any
) -> None:
    images, labels, budget = robust.images[:8], robust.labels[:8], Budget.parse(text)
    clean = robust.model.logits(images)
    wanted = RULES["least-likely"](clean, labels)
    found = candidates(function(robust.model, images, labels, budget=budget, draws=streams(8), **options), 8)
    share = torch.stack([robust.model.logits(one.images).log_softmax(1) for one in found])
    gained = share.gather(2, wanted.expand(len(found), -1).unsqueeze(2)).squeeze(2).amax(0)
    assert bool((gained > clean.log_softmax(1).gather(1, wanted.unsqueeze(1)).squeeze(1)).all())


@pytest.mark.parametrize(("function", "text", "options"), ATTACKS)
def test_an_unknown_target_is_an_error(
    function: Callable[..., Any], text: str, options: dict[str, Any], robust: Any, streams: Any
) -> None:
    with pytest.raises(BadValue, match="expected one of second, least-likely, next"):
        next(
            function(
                robust.model, robust.images, robust.labels, budget=Budget.parse(text), draws=streams(64), target="best"
            )
        )


@pytest.mark.parametrize("name", ["fgsm", "pgd", "noise", "square"])
def test_an_attack_without_a_targeted_form_says_so(name: str, robust: Any) -> None:
    """R47: never an unperturbed success."""
    with pytest.raises(UserError, match=f"argument of attack {name}"):
        attack(robust.model, robust.images, robust.labels, f"{name}(target=next)@linf:0.1")
