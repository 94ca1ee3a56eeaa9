"""Several threats in turn: the worst of them decides, and each does what it does alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import robustkpca as rk
from robustkpca.errors import UserError
from robustkpca.records import Verdict

FIRST, SECOND = "noise(samples=3)@linf:0.3", "pgd(steps=3)@l2:0.6"


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 5 * 5, 4))


def inputs(model: nn.Module) -> tuple[Tensor, Tensor]:
    images = torch.rand(40, 3, 5, 5)
    labels = model(images).argmax(1)
    labels[:4] = (labels[:4] + 1) % 4
    return images, labels


def test_a_sample_survives_if_it_survives_every_member() -> None:
    model = network()
    images, labels = inputs(model)
    first, second = (rk.attack(model, images, labels, text) for text in (FIRST, SECOND))
    both = rk.attack(model, images, labels, f"worst-of({FIRST},{SECOND})")
    assert {Verdict.BROKEN, Verdict.SURVIVED} == set(first.verdicts[4:]) == set(second.verdicts[4:])
    for row, verdict in enumerate(both.verdicts):
        one, other = first.verdicts[row], second.verdicts[row]
        expected = one if one is not Verdict.SURVIVED else other
        assert verdict is expected
        decided = first if one is not Verdict.SURVIVED else second
        torch.testing.assert_close(both.images[row], decided.images[row], atol=1e-6, rtol=0)
        torch.testing.assert_close(both.distances[row], decided.distances[row], atol=1e-6, rtol=0)
        spent = first.forwards[row] + (second.forwards[row] if one is Verdict.SURVIVED else 0)
        assert both.forwards[row] == spent


def test_members_are_spelled_out_in_one_text() -> None:
    one = rk.threat(f"worst-of( {FIRST}, {SECOND} )")
    assert one.label == f"worst-of({FIRST},{SECOND})"
    assert str(one) == f"worst-of({rk.threat(FIRST)},{rk.threat(SECOND)})"
    assert rk.threat(str(one)) == one == rk.threat(one.label)
    nested = rk.threat(f"worst-of(clean,worst-of({FIRST},{SECOND}))")
    assert rk.threat(str(nested)) == nested
    assert [part.label for part in nested.parts] == ["clean", FIRST, SECOND]
    assert [part.label for part in rk.threat("clean").parts] == ["clean"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worst-of(clean)", "at least two different threats"),
        ("worst-of()", "at least two different threats"),
        ("worst-of(fgsm@linf:0.1,fgsm@linf:0.1)", "at least two different threats"),
        ("worst-of(fgsm@linf:0.1,published/fgsm@linf:0.1)", "mixes the pixel and the published protocol"),
        ("worst-of(fgsm@linf:0.1,clean", "bracket is not closed"),
        ("worst-of(fgsm(@linf:0.1,clean)", "bracket"),
        ("worst-of(fgsm@linf:0.1,pdg@linf:0.1)", "Did you mean"),
    ],
)
def test_what_is_no_sequence_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        rk.threat(text)


def test_both_protocols_have_sequences_of_their_own() -> None:
    model = network()
    images, labels = inputs(model)
    texts = ("published/fgsm@linf:0.2", "published/pgd(steps=2)@linf:0.2")
    apart = [rk.attack(model, images, labels, text) for text in texts]
    both = rk.attack(model, images, labels, f"worst-of({','.join(texts)})")
    survived = [all(one.verdicts[row] is Verdict.SURVIVED for one in apart) for row in range(len(images))]
    assert [verdict is Verdict.SURVIVED for verdict in both.verdicts] == survived
    assert rk.threat(f"worst-of({','.join(texts)})").protocol.value == "published"


def test_a_member_with_a_new_version_makes_other_records() -> None:
    one = rk.threat(f"worst-of({FIRST},{SECOND})")
    assert one.version > max(member.version for member in one.members)


def test_what_cannot_be_judged_by_a_member_is_no_survivor() -> None:
    class Fickle(nn.Module):
        """Gives no finite logits for images that were changed by much."""

        def forward(self, images: Tensor) -> Tensor:
            logits = images.flatten(1)[:, :4] * 0 + torch.tensor([5.0, 0.0, 0.0, 0.0])
            return torch.where((images - 0.5).abs().flatten(1).amax(1, keepdim=True) > 0.2, torch.nan, logits)

    images, labels = torch.full((5, 3, 5, 5), 0.5), torch.zeros(5, dtype=torch.int64)
    result = rk.attack(Fickle(), images, labels, "worst-of(noise@linf:0.1,noise@linf:0.4,noise@linf:0.15)")
    assert set(result.verdicts) == {Verdict.INVALID}
