"""The text of a threat is its key: exact, canonical, and read back the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from types import ModuleType

import pytest
import torch
from torch import Tensor

from robustkpca import registry, threats
from robustkpca.budget import Budget, Norm
from robustkpca.errors import BadValue, UnknownName, UserError
from robustkpca.registry import Entry
from robustkpca.threats import Protocol, ThreatModel, spread, threat

PGD = "pgd(random_start=true,relative_step=0.15,restarts=1,steps=20)@linf:8/255"


def grey(images: Tensor, *, severity: int, draws: object, amount: float = 0.5) -> Tensor:
    """Stands for a corruption."""
    return images


@pytest.fixture
def corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announces one corruption, whatever is installed."""
    module = ModuleType("corruptions_of_a_test")
    module.grey = grey  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    real = registry.entries
    table = {"grey": Entry("corruptions_of_a_test:grey", version=3)}
    monkeypatch.setattr(registry, "entries", lambda group: table if group == "corruptions" else real(group))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("clean", "clean"),
        (" clean ", "clean"),
        ("fgsm@linf:6/255", "fgsm@linf:6/255"),
        ("pgd@linf:8/255", PGD),
        ("pgd(steps=20)@linf:8/255", PGD),
        (" pgd( steps = 20 ) @ LINF : 16/510 ", PGD),
        ("pgd(steps=2e1,relative_step=3/20)@linf:8/255", PGD),
        ("noise@l2:1/2", "noise(samples=1)@l2:0.5"),
    ],
)
def test_every_spelling_has_one_canonical_text(text: str, canonical: str) -> None:
    assert str(threat(text)) == canonical


@pytest.mark.parametrize(
    "text",
    ["clean", "fgsm@l1:12", "pgd(steps=3)@linf:0.031", "noise(samples=4)@l2:1/7", "published/pgd(steps=2)@l2:0.5"],
)
@pytest.mark.parametrize("form", [str, lambda value: value.label], ids=["text", "label"])
def test_text_and_label_are_read_back_as_the_same_threat(text: str, form: Callable[[ThreatModel], str]) -> None:
    assert threat(form(threat(text))) == threat(text)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("clean", "clean"),
        (PGD, "pgd@linf:8/255"),
        ("pgd(steps=40,restarts=1)@linf:8/255", "pgd(steps=40)@linf:8/255"),
        ("published/pgd(steps=20)@linf:6/255", "published/pgd@linf:6/255"),
    ],
)
def test_the_label_leaves_the_defaults_out(text: str, label: str) -> None:
    assert threat(text).label == label


def test_equal_threats_are_one_key() -> None:
    assert len({threat("pgd@linf:8/255"), threat("pgd(steps=20)@linf:16/510")}) == 1


def test_6_of_255_stays_6_of_255() -> None:
    assert threat("fgsm@linf:6/255").budget == Budget(Norm.LINF, Fraction(6, 255))


def test_8_of_255_and_0_031_are_two_threats() -> None:
    """R23."""
    assert threat("fgsm@linf:8/255") != threat("fgsm@linf:0.031")


def test_the_published_protocol_lifts_the_bounds() -> None:
    found = threat("published/pgd@linf:6/255")
    assert found.protocol is Protocol.PUBLISHED
    assert found.budget is not None
    assert not found.budget.bounded


def test_a_protocol_can_be_given_beside_the_text() -> None:
    found = ThreatModel.parse("fgsm@linf:6/255", protocol=Protocol.PUBLISHED)
    assert found == threat("published/fgsm@linf:6/255")
    assert str(found).startswith("published/fgsm")


def test_the_text_goes_before_the_protocol_given_beside_it() -> None:
    found = ThreatModel.parse("published/fgsm@linf:6/255", protocol=Protocol.PIXEL)
    assert found.protocol is Protocol.PUBLISHED


def test_the_published_form_is_another_function() -> None:
    assert threat("published/pgd@linf:6/255").function().__name__ == "published_pgd"
    assert threat("pgd@linf:6/255").function().__name__ == "pgd"


def test_clean_has_no_function() -> None:
    with pytest.raises(BadValue, match="'clean' has no function"):
        threat("clean").function()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("pdg@linf:8/255", "no threat named 'pdg'. Did you mean 'pgd'"),
        ("cleen", "no threat named 'cleen'. Did you mean 'clean'"),
        ("pgd(step=3)@linf:8/255", "no argument of attack pgd named 'step'. Did you mean 'steps'"),
        ("pgd(draws=3)@linf:8/255", "no argument of attack pgd named 'draws'"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(text: str, complaint: str) -> None:
    with pytest.raises(UnknownName, match=complaint):
        threat(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a name"),
        ("pgd", "an attack needs a budget.*; write 'pgd@linf:8/255'"),
        ("pgd:3", "an attack needs a budget"),
        ("pgd:3@linf:8/255", "an attack needs a budget, no severity"),
        ("pgd@", "budget '': expected NORM:RADIUS"),
        ("pgd@linf", "expected NORM:RADIUS"),
        ("pgd@linf:8/255:3", "expected NORM:RADIUS"),
        ("pgd@l0:3", "NORM one of linf, l2, l1"),
        ("pgd@linf:8", "did you mean 'linf:8/255'"),
        ("pgd(steps=many)@linf:8/255", "expected a whole number"),
        ("pgd(steps=3@linf:8/255", "bracket is not closed"),
        ("clean@linf:8/255", "clean takes no options and no budget"),
        ("clean:3", "clean takes no options and no budget"),
        ("clean(steps=3)", "clean takes no options and no budget"),
    ],
)
def test_a_wrong_text_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        threat(text)
    assert "\n" not in str(caught.value)


def test_a_norm_that_the_attack_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    only = Entry("robustkpca.attacks.fgsm:fgsm", tags=("linf",))
    monkeypatch.setattr(registry, "entries", lambda group: {"one": only} if group == "attacks" else {})
    with pytest.raises(BadValue, match="one supports linf, not l2"):
        threat("one@l2:0.5")


def test_an_attack_without_published_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    only = Entry("robustkpca.attacks.fgsm:fgsm", tags=("linf",))
    monkeypatch.setattr(registry, "entries", lambda group: {"one": only} if group == "attacks" else {})
    with pytest.raises(BadValue, match="one has no published form"):
        threat("published/one@linf:1/255")


@pytest.mark.usefixtures("corruption")
@pytest.mark.parametrize(("text", "label"), [("grey:3", "grey:3"), ("grey(amount=1):5", "grey(amount=1.0):5")])
def test_a_corruption_has_a_severity(text: str, label: str) -> None:
    found = threat(text)
    assert found.severity == int(text[-1])
    assert found.label == label
    assert threat(str(found)) == found


@pytest.mark.usefixtures("corruption")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("grey", "expected a severity from 1 to 5, such as 'grey:3'"),
        ("grey:0", "expected a severity from 1 to 5"),
        ("grey:6", "expected a severity from 1 to 5"),
        ("grey:2.5", "expected a severity from 1 to 5"),
        ("grey@linf:8/255", "takes a severity, not a budget"),
        ("published/grey:3", "takes a severity, not a budget"),
        ("grey(severity=3):3", "no argument of corruption grey named 'severity'"),
    ],
)
def test_a_corruption_without_a_proper_severity_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        threat(text)


@pytest.mark.usefixtures("corruption")
def test_the_version_is_that_of_the_entry() -> None:
    assert (threat("grey:1").version, threat("clean").version) == (3, 1)


@pytest.mark.usefixtures("corruption")
def test_a_corruption_finds_its_function() -> None:
    pixels = torch.zeros(1)
    assert threat("grey:1").function()(pixels, severity=1, draws=None) is pixels


def test_the_list_holds_clean_and_what_matches() -> None:
    assert threats.list_threats("FGS") == ["fgsm", "fgsm_t"]
    assert threats.list_threats()[0] == "clean"


def boards() -> list[str]:
    return sorted(registry.entries("leaderboards"))


@pytest.mark.parametrize("name", boards())
def test_every_built_in_board_writes_its_threats_as_labels(name: str) -> None:
    """Columns are found by label; another spelling would never be filled."""
    board = registry.find("leaderboards", name).load()
    assert [threat(text).label for text in board.threats] == list(board.threats)


@pytest.mark.usefixtures("corruption")
def test_a_corruption_without_a_severity_stands_for_all_five() -> None:
    assert spread("grey") == ["grey:1", "grey:2", "grey:3", "grey:4", "grey:5"]
    assert spread("grey(strength=2)") == [f"grey(strength=2):{severity}" for severity in range(1, 6)]
    for text in ("grey:3", "clean", "pgd@linf:8/255", "nothing"):
        assert spread(text) == [text]
