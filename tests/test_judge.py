"""Who won: closed forms on linear models, and every way in which an attack can misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Keep, Loss, cross_entropy
from robustkpca.attacks.fgsm import fgsm
from robustkpca.attacks.pgd import pgd
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue
from robustkpca.judge import judge_attack, judge_change, judge_clean, judge_published
from robustkpca.judgement import Judgement
from robustkpca.meter import margins
from robustkpca.models.loading import wrap
from robustkpca.records import Verdict

M, S, B, I, F = Verdict.MISTAKEN, Verdict.SURVIVED, Verdict.BROKEN, Verdict.INVALID, Verdict.FAILED  # noqa: E741
LINF = Budget.parse("linf:0.1")
Attack = Callable[..., Any]


class Linear:
    """Logits ``(w . x + b, 0)`` in float32; class 0 wins where the margin is not negative."""

    def __init__(self, weight: Tensor, bias: float = 0.0) -> None:
        self.weight, self.bias = weight, bias
        self.seen: list[Tensor] = []

    def logits(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        self.seen.append(images.detach().clone())
        with torch.no_grad():
            return self._forward(images)

    def value_and_gradient(self, images: Tensor, loss: Loss, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self.seen.append(images.detach().clone())
        images = images.detach().requires_grad_(True)
        logits = self._forward(images)
        (gradient,) = torch.autograd.grad(loss(logits).sum(), images)
        return logits.detach(), gradient

    def _forward(self, images: Tensor) -> Tensor:
        margin = images.flatten(1) @ self.weight + self.bias
        return torch.stack([margin, torch.zeros_like(margin)], dim=1)


class Threshold(Linear):
    """One pixel; class 0 where it is at least one half."""

    def __init__(self) -> None:
        super().__init__(torch.tensor([1.0]), -0.5)


def pixel(*values: float) -> Tensor:
    """Return images of one pixel."""
    return torch.tensor(values).view(-1, 1, 1, 1)


def judged(
    attack: Attack,
    images: Tensor,
    labels: list[int] | None = None,
    *,
    model: Any = None,
    budget: Budget = LINF,
    judge: Callable[..., Judgement] = judge_attack,
    **options: Any,
) -> Judgement:
    """Let an attack loose, on class 0 and the threshold model where nothing else is said."""
    target = torch.zeros(len(images), dtype=torch.int64) if labels is None else torch.tensor(labels)
    draws = Draws.of([str(index) for index in range(len(images))], seed=0, threat="test")
    return judge(Threshold() if model is None else model, attack, images, target, budget=budget, draws=draws, **options)


def proposing(*changes: float) -> Attack:
    """Return an attack that proposes the images, shifted by each of these."""

    def attack(model: Any, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Iterator[Candidate]:
        for change in changes:
            keep = yield Candidate(images + change)
            images, draws = keep(images, draws)

    return attack


def without_bounds(budget: Budget = LINF) -> Budget:
    """Return the budget of the published protocol."""
    return Budget(budget.norm, budget.radius, bounded=False)


# Closed forms


def linear_case(norm: Norm) -> tuple[Linear, Tensor, list[Verdict]]:
    """A linear model whose images have margins from 0.5 to 1.5 of what the radius can take, away from the box."""
    weight = torch.tensor([0.3, -0.1, 0.2, 0.05, -0.25, 0.15])
    dual = {Norm.LINF: 1, Norm.L2: 2, Norm.L1: float("inf")}[norm]
    reach = 0.1 * float(torch.linalg.vector_norm(weight, dual))
    generator = torch.Generator().manual_seed(0)
    raw = 0.4 + 0.2 * torch.rand(8, 6, generator=generator)
    shares = torch.tensor([0.5, 0.8, 0.95, 0.98, 1.02, 1.05, 1.2, 1.5])
    shift = (shares * reach - raw @ weight) / weight.dot(weight)
    images = raw + shift[:, None] * weight
    assert images.min() > 0.1
    assert images.max() < 0.9
    return Linear(weight), images.view(8, 1, 2, 3), [B] * 4 + [S] * 4


@pytest.mark.parametrize("norm", list(Norm))
def test_fgsm_breaks_a_linear_model_exactly_where_the_dual_norm_says(norm: Norm) -> None:
    """The margin falls by radius times the dual norm of the weight, and by no more."""
    model, images, expected = linear_case(norm)
    assert judged(fgsm, images, model=model, budget=Budget(norm, Fraction(1, 10))).verdicts == expected


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("random_start", [True, False])
def test_pgd_breaks_a_linear_model_exactly_where_the_dual_norm_says(norm: Norm, random_start: bool) -> None:
    model, images, expected = linear_case(norm)
    result = judged(pgd, images, model=model, budget=Budget(norm, Fraction(1, 10)), steps=60, random_start=random_start)
    assert result.verdicts == expected


def test_the_box_protects_an_image_at_its_corner() -> None:
    """All pixels are 0 and the weight is positive, so the only harmful direction leads out of [0, 1]."""
    model = Linear(torch.tensor([1.0, 1.0]), 0.01)
    assert judged(pgd, torch.zeros(1, 1, 1, 2), model=model).verdicts == [S]


@pytest.mark.parametrize("label", [0, 1])
def test_both_classes_can_be_attacked(label: int) -> None:
    image = pixel(0.55 if label == 0 else 0.45)
    assert judged(fgsm, image, [label]).verdicts == [B]


def test_the_distance_is_that_of_the_deciding_change() -> None:
    model, images, _ = linear_case(Norm.L2)
    result = judged(fgsm, images, model=model, budget=Budget.parse("l2:0.1"))
    torch.testing.assert_close(result.distances, torch.full((8,), 0.1))


def test_a_radius_of_zero_breaks_nothing() -> None:
    assert judged(pgd, pixel(0.5001, 0.9), budget=Budget.parse("linf:0")).verdicts == [S, S]


def test_margins_are_the_lead_of_the_label() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    assert margins(logits, torch.tensor([0, 1])).tolist() == [1.0, -2.0]


# Clean images


def test_clean_images_survive_or_are_mistaken() -> None:
    result = judge_clean(Threshold(), pixel(0.9, 0.1), torch.tensor([0, 0]))
    assert result.verdicts == [S, M]
    assert result.meter.forwards.tolist() == [1, 1]


class Silent(Threshold):
    """Gives NaN for dark images."""

    def _forward(self, images: Tensor) -> Tensor:
        logits = super()._forward(images)
        return logits.where(images.flatten(1) > 0.2, torch.nan)


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
def test_an_output_that_is_not_finite_is_invalid_and_not_attacked(judge: Callable[..., Judgement]) -> None:
    result = judged(proposing(0.0), pixel(0.1, 0.9), model=Silent(), judge=judge)
    assert result.verdicts == [I, S]
    assert "not finite" in result.details[0]


def test_clean_mistakes_are_never_attacked() -> None:
    held = []

    def spy(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Tensor:
        held.append(images.flatten().tolist())
        return images

    result = judged(spy, pixel(0.9, 0.1, 0.8))
    assert held == [pixel(0.9, 0.8).flatten().tolist()]
    assert result.verdicts == [S, M, S]
    assert result.meter.forwards.tolist() == [2, 1, 2]


def test_an_attack_is_not_started_where_everything_is_wrong() -> None:
    """R37: the attack makes no pass, nothing changes, nothing is robust."""

    def never(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("the attack was started")

    result = judged(never, pixel(0.1, 0.2))
    assert result.verdicts == [M, M]
    assert result.meter.forwards.tolist() == [1, 1]
    assert torch.equal(result.images, pixel(0.1, 0.2))


# Withdrawal


def test_who_is_broken_leaves_the_batch() -> None:
    held = []

    def spy(model: Any, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Iterator[Candidate]:
        for _ in range(3):
            held.append((images.flatten().tolist(), labels.tolist(), len(draws)))
            keep = yield Candidate(images - 0.1)
            images, labels, draws = keep(images, labels, draws)

    images = pixel(0.55, 0.75, 0.58)
    result = judged(spy, images)
    assert held == [(images.flatten().tolist(), [0, 0, 0], 3)] + [([0.75], [0], 1)] * 2
    assert result.verdicts == [B, S, B]


def test_who_left_costs_no_further_passes() -> None:
    result = judged(proposing(-0.1, -0.1, -0.1), pixel(0.55, 0.75))
    assert result.meter.forwards.tolist() == [2, 4]


def test_an_attack_ends_when_nobody_stands() -> None:
    closed = []

    def endless(model: Any, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Iterator[Candidate]:
        try:
            while True:
                yield Candidate(images - 0.1)
        finally:
            closed.append(True)

    assert judged(endless, pixel(0.55)).verdicts == [B]
    assert closed == [True]


def test_a_candidate_that_broke_in_the_middle_counts_although_the_last_is_harmless() -> None:
    result = judged(proposing(0.0, -0.1, 0.1), pixel(0.55))
    assert result.verdicts == [B]
    torch.testing.assert_close(result.images, pixel(0.45))


def test_the_images_of_survivors_are_the_last_proposed() -> None:
    result = judged(proposing(-0.1, 0.05), pixel(0.75))
    torch.testing.assert_close(result.images, pixel(0.80))


def test_known_logits_save_the_judge_a_pass() -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        yield Candidate(images, model.logits(images))

    assert judged(attack, pixel(0.9)).meter.forwards.tolist() == [2]


def test_verdicts_do_not_depend_on_the_company() -> None:
    model, images, _ = linear_case(Norm.L2)
    budget, labels = Budget.parse("l2:0.1"), torch.zeros(8, dtype=torch.int64)
    draws = Draws.of([str(index) for index in range(8)], seed=0, threat="test")
    together = judge_attack(model, pgd, images, labels, budget=budget, draws=draws, steps=5)
    for row in range(8):
        one, index = slice(row, row + 1), torch.tensor([row])
        stream = Draws(draws.keys[index])
        alone = judge_attack(model, pgd, images[one], labels[one], budget=budget, draws=stream, steps=5)
        assert alone.verdicts == together.verdicts[one]
        torch.testing.assert_close(alone.images, together.images[one])


# Candidates that cannot be judged


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
@pytest.mark.parametrize("change", [0.11, torch.nan, torch.inf])
def test_a_candidate_outside_its_budget_or_not_finite_is_invalid(
    change: float, judge: Callable[..., Judgement]
) -> None:
    result = judged(proposing(change), pixel(0.75), judge=judge)
    assert result.verdicts == [I]
    assert result.details[0]


def test_a_candidate_outside_the_pixel_range_is_invalid() -> None:
    result = judged(proposing(0.1), pixel(0.95))
    assert result.verdicts == [I]
    assert "outside linf:0.1 or [0, 1]" in result.details[0]


def test_a_candidate_that_leaves_its_budget_is_no_success() -> None:
    """Misclassified, but 0.3 away where 0.1 is allowed."""
    assert judged(proposing(-0.3), pixel(0.75)).verdicts == [I]


def test_an_invalid_candidate_cannot_be_repaired_later() -> None:
    assert judged(proposing(0.2, -0.1), pixel(0.55)).verdicts == [I]


def test_an_invalid_candidate_leaves_the_others_alone() -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Tensor:
        return images - torch.tensor([0.1, 0.2, 0.1]).view(-1, 1, 1, 1)

    assert judged(attack, pixel(0.55, 0.75, 0.75)).verdicts == [B, I, S]


def test_a_rounding_error_above_the_radius_is_judged() -> None:
    """R23."""
    assert judged(proposing(-0.1 - 5e-7), pixel(0.55)).verdicts == [B]


def test_a_model_that_gives_nan_for_a_candidate_is_not_broken() -> None:
    result = judged(proposing(-0.4), pixel(0.55), model=Silent(), budget=Budget.parse("linf:0.5"))
    assert result.verdicts == [I]


# Attacks that fail


def test_an_exception_is_written_down_for_those_who_stood() -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        yield Candidate(images - 0.1)
        raise ZeroDivisionError("no step left")

    result = judged(attack, pixel(0.55, 0.75, 0.1))
    assert result.verdicts == [B, F, M]
    assert result.details[1].startswith("ZeroDivisionError: no step left (attack, line ")
    assert result.details[0] == result.details[2] == ""


def wrong_shape(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Tensor:
    return images[:, :, :0]


def nothing_returned(model: Any, images: Tensor, labels: Tensor, **_: Any) -> None:
    return None


def other_signature(model: Any, images: Tensor) -> Iterator[Candidate]:
    yield Candidate(images)


def forgetful(model: Any, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Iterator[Candidate]:
    """Forgets to narrow what it holds."""
    yield Candidate(images - 0.1)
    yield Candidate(images - 0.1)


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
@pytest.mark.parametrize("attack", [wrong_shape, nothing_returned, other_signature])
def test_an_attack_with_another_interface_fails_and_is_not_robust(
    attack: Attack, judge: Callable[..., Judgement]
) -> None:
    result = judged(attack, pixel(0.75, 0.85), judge=judge)
    assert result.verdicts == [F, F]
    assert all(result.details)


def test_an_attack_that_forgets_to_narrow_fails() -> None:
    result = judged(forgetful, pixel(0.55, 0.75))
    assert result.verdicts == [B, F]
    assert "proposed (2, 1, 1, 1) where (1, 1, 1, 1) stand" in result.details[1]


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
@pytest.mark.parametrize("error", [BadValue("not these images"), SystemExit(3), GeneratorExit()])
def test_whatever_an_attack_raises_is_a_failure_of_these_images_alone(
    error: BaseException, judge: Callable[..., Judgement]
) -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        yield Candidate(images)
        raise error

    result = judged(attack, pixel(0.75, 0.85), judge=judge)
    assert result.verdicts == [F, F]
    assert result.details[0].startswith(type(error).__name__)


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
def test_an_attack_that_proposes_nothing_has_not_tried(judge: Callable[..., Judgement]) -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        yield from ()

    result = judged(attack, pixel(0.75, 0.85), judge=judge)
    assert result.verdicts == [F, F]
    assert "proposed nothing" in result.details[0]


def test_published_does_not_take_none_for_an_image() -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Any]:
        yield None

    result = judged(attack, pixel(0.75), judge=judge_published)
    assert result.verdicts == [F]
    assert "proposed a NoneType" in result.details[0]


@pytest.mark.parametrize("ending", ["raises", "goes on"])
def test_an_attack_that_does_not_let_itself_be_closed_changes_no_verdict(ending: str) -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        try:
            yield Candidate(images - 0.1)
        except GeneratorExit:
            if ending == "raises":
                raise ValueError("cleaning up failed") from None
            yield Candidate(images)

    assert judged(attack, pixel(0.55)).verdicts == [B]


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
@pytest.mark.parametrize("logits", [torch.zeros(1, 2), torch.zeros(2, 3), torch.zeros(2, 2, dtype=torch.long), "text"])
def test_logits_of_another_form_are_a_failure(logits: Any, judge: Callable[..., Judgement]) -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        yield Candidate(images, logits)

    result = judged(attack, pixel(0.75, 0.85), judge=judge)
    assert result.verdicts == [F, F]
    assert "expected (2, 2)" in result.details[0]


class Raising(Threshold):
    """Raises at one of its calls."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self.call, self.calls = call, 0

    def _forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.call:
            raise OSError("the model is tired")
        return super()._forward(images)


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_model_that_raises_is_a_failure_whenever_it_does(call: int, judge: Callable[..., Judgement]) -> None:
    """The clean pass, that on the candidate, and under the first protocol that on the broken image."""
    result = judged(proposing(-0.1), pixel(0.55), model=Raising(call), judge=judge)
    assert result.verdicts == ([B] if (call, judge) == (3, judge_published) else [F])
    assert not result.details[0] or "OSError: the model is tired" in result.details[0]


@pytest.mark.parametrize("call", [1, 2])
def test_a_model_that_raises_on_changed_images_is_a_failure(call: int) -> None:
    result = judge_change(Raising(call), pixel(0.9), pixel(0.1), torch.tensor([0]))
    assert result.verdicts == [F]
    assert "the model is tired" in result.details[0]


def test_memory_that_does_not_suffice_for_a_pass_ends_the_run() -> None:
    class Large(Threshold):
        def _forward(self, images: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError):
        judge_clean(Large(), pixel(0.9), torch.tensor([0]))


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
def test_an_interrupt_is_not_swallowed(judge: Callable[..., Judgement]) -> None:
    def attack(*_: Any, **__: Any) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judged(attack, pixel(0.75), judge=judge)


def in_place(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Tensor:
    labels += 1
    return images.sub_(0.1)


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
def test_an_attack_that_works_in_place_changes_nothing_of_ours(judge: Callable[..., Judgement]) -> None:
    images, labels = pixel(0.55, 0.75), torch.tensor([0, 0])
    draws = Draws.of(["0", "1"], seed=0, threat="test")
    result = judge(Threshold(), in_place, images, labels, budget=LINF, draws=draws)
    assert result.verdicts == [B, S]
    assert torch.equal(images, pixel(0.55, 0.75))
    assert labels.tolist() == [0, 0]
    torch.testing.assert_close(result.distances, torch.tensor([0.1, 0.1]))


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
def test_a_plain_function_may_leave_its_graph_attached(judge: Callable[..., Judgement]) -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Tensor:
        return images.requires_grad_(True) - 0.1

    result = judged(attack, pixel(0.55, 0.75), judge=judge)
    assert result.verdicts == [B, S]
    assert not any(tensor.requires_grad for tensor in (result.images, result.logits, result.distances))


# Scoring once more


class Moody(Threshold):
    """Says the opposite on one of its calls."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self.call, self.calls = call, 0

    def _forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        sign = -1 if self.calls == self.call else 1
        return sign * super()._forward(images)


def test_a_success_that_cannot_be_repeated_is_invalid() -> None:
    """R27, R29: the second call, on the candidate, answers otherwise than a later one."""
    result = judged(proposing(0.0), pixel(0.9), model=Moody(2))
    assert result.verdicts == [I]
    assert result.details == ["scored once more, the broken image is classified correctly"]


def test_false_logits_of_an_attack_are_found_out() -> None:
    def liar(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        yield Candidate(images, torch.tensor([[0.0, 1.0]]).expand(len(images), 2))

    assert judged(liar, pixel(0.9)).verdicts == [I]


RIGHT, WRONG = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
@pytest.mark.parametrize(
    ("change", "claim", "verdicts"),
    [(-0.1, RIGHT, [I, I]), (0.0, RIGHT, [I, I]), (0.0, WRONG, [I, I])],
    ids=["hides a success", "survives by other logits", "invents a success"],
)
def test_no_verdict_rests_on_logits_that_an_attack_made_up(
    change: float, claim: Tensor, verdicts: list[Verdict], judge: Callable[..., Judgement]
) -> None:
    def liar(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        yield Candidate(images + change, claim.expand(len(images), 2))

    assert judged(liar, pixel(0.55, 0.58), judge=judge).verdicts == verdicts


@pytest.mark.parametrize("judge", [judge_attack, judge_published])
def test_logits_of_an_earlier_image_are_found_out(judge: Callable[..., Judgement]) -> None:
    def stale(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        logits = model.logits(images)
        yield Candidate(images - 0.1, logits)

    assert judged(stale, pixel(0.55, 0.9), judge=judge).verdicts == [I, I]


@pytest.mark.parametrize(("call", "verdict"), [(2, I), (3, I), (9, S)])
def test_a_survivor_by_stated_logits_is_scored_once_more_without_charge(call: int, verdict: Verdict) -> None:
    """The attack asks in the second call, the judge in the third."""

    def honest(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        yield Candidate(images, model.logits(images))

    result = judged(honest, pixel(0.9), model=Moody(call))
    assert result.verdicts == [verdict]
    assert result.meter.forwards.tolist() == [2]


def test_a_survivor_of_a_model_that_does_not_repeat_itself_stays() -> None:
    """Logits that differ from pass to pass are no lie of the attack; the table says that the output is random."""

    class Random(Threshold):
        calls = 0

        def _forward(self, images: Tensor) -> Tensor:
            Random.calls += 1
            return (1 + Random.calls) * super()._forward(images)

    def honest(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Iterator[Candidate]:
        yield Candidate(images, model.logits(images))

    assert judged(honest, pixel(0.9), model=Random()).verdicts == [S]


def test_a_success_that_repeats_stays() -> None:
    assert judged(proposing(-0.1), pixel(0.55)).verdicts == [B]


def test_scoring_once_more_is_not_charged_to_the_attack() -> None:
    assert judged(proposing(-0.1), pixel(0.55)).meter.forwards.tolist() == [2]


# The published protocol


def published(attack: Attack, images: Tensor, labels: list[int] | None = None, **options: Any) -> Judgement:
    """Run an attack under the published protocol."""
    return judged(attack, images, labels, judge=judge_published, budget=without_bounds(), **options)


def test_published_attacks_see_the_models_own_predictions() -> None:
    heard = []

    def spy(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Tensor:
        heard.append(labels.tolist())
        return images

    published(spy, pixel(0.9, 0.1), [1, 1])
    assert heard == [[0, 1]]


def test_published_attacks_get_everything_and_keep_it() -> None:
    held = []

    def spy(model: Any, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Iterator[Candidate]:
        for _ in range(2):
            held.append(len(images))
            keep = yield Candidate(images - 0.1)
            images = keep(images)

    published(spy, pixel(0.55, 0.1))
    assert held == [2, 2]


def test_published_looks_at_the_last_candidate_only() -> None:
    assert published(proposing(-0.1, 0.1), pixel(0.55)).verdicts == [S]


def test_published_counts_a_mistake_that_the_attack_mended() -> None:
    """Class 0 is true and 1 predicted; pushed away from 1, the image is classified correctly."""
    assert published(fgsm, pixel(0.45), [0]).verdicts == [S]


def test_published_calls_a_mistake_that_stays_a_mistake() -> None:
    assert published(proposing(0.0), pixel(0.3), [0]).verdicts == [M]


def test_published_breaks_what_was_right() -> None:
    result = published(fgsm, pixel(0.55))
    assert result.verdicts == [B]
    torch.testing.assert_close(result.distances, torch.tensor([0.1]))


def test_published_lets_images_leave_0_and_1() -> None:
    assert published(proposing(0.1), pixel(0.95)).verdicts == [S]


def test_published_failures_are_failures_of_all() -> None:
    def attack(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("out of luck")

    result = published(attack, pixel(0.9, 0.1))
    assert result.verdicts == [F, F]
    assert result.details[0].startswith("RuntimeError: out of luck")


# Changes that do not look at the model


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [(0.9, 0.8, S), (0.9, 0.1, B), (0.1, 0.9, S), (0.1, 0.2, M), (0.9, float("nan"), I)],
)
def test_a_change_is_judged_by_what_comes_after_it(before: float, after: float, verdict: Verdict) -> None:
    result = judge_change(Threshold(), pixel(before), pixel(after), torch.tensor([0]))
    assert result.verdicts == [verdict]


def test_a_change_costs_two_passes() -> None:
    result = judge_change(Threshold(), pixel(0.9), pixel(0.8), torch.tensor([0]))
    assert result.meter.forwards.tolist() == [2]


def test_saturated_gradients_are_counted() -> None:
    """R9: at a margin of 1000 the float32 softmax is exactly 1 and the gradient exactly 0."""
    model = Linear(torch.tensor([1e4]), -5e3)
    result = judged(pgd, pixel(0.6), model=model, steps=3, random_start=False)
    assert result.meter.zero_gradients.tolist() == [3]


def test_gradients_that_are_not_finite_are_counted() -> None:
    """The derivative of a square root is infinite at zero."""

    class Rooted(Linear):
        def _forward(self, images: Tensor) -> Tensor:
            return super()._forward(images + 0 * (images - images).sqrt())

    result = judged(pgd, pixel(0.6), model=Rooted(torch.tensor([1.0])), steps=3, random_start=False)
    assert result.meter.nonfinite_gradients.tolist() == [3]
    assert result.meter.zero_gradients.tolist() == [0]


def test_the_keep_of_nobody_lost_is_the_identity() -> None:
    labels = torch.tensor([0, 1])
    assert Keep(torch.tensor([True, True]))(labels) is labels
    assert cross_entropy(labels).rows[0] is labels


@pytest.mark.parametrize("made", ["nothing", "a tensor"])
def test_an_attack_that_proposes_no_candidate_is_told_what_to_yield(made: str) -> None:
    def attack(model: Any, images: Tensor, labels: Tensor, **_: Any) -> Any:
        yield None if made == "nothing" else images

    images, labels = torch.full((2, 3), 0.5), torch.zeros(2, dtype=torch.long)
    judged = judge_attack(
        wrap(lambda x: torch.stack([x.sum(1), -x.sum(1)], 1)),
        attack,
        images,
        labels,
        budget=Budget.parse("linf:0.1"),
        draws=Draws.of(["0", "1"], seed=0, threat="t"),
    )
    assert set(judged.verdicts) == {Verdict.FAILED}
    assert "expected it to yield Candidate(images)" in judged.details[0]
