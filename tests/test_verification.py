"""Two implementations are compared sample by sample, and one that does nothing is found out."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest

from robustkpca.adversary import Candidate, Proposals
from robustkpca.attacks import apgd
from robustkpca.commands import cli
from robustkpca.errors import BadValue
from robustkpca.matrix import Matrix
from robustkpca.verification import Agreement, compared, verify

LETTERS = {"S": "survived", "B": "broken", "M": "mistaken", "I": "invalid", "F": "failed"}


def frame(**verdicts: str) -> pandas.DataFrame:
    """One letter per sample; ``_`` where there is no record."""
    rows = [
        {"sample": str(index), "threat_label": threat, "verdict": LETTERS[letter], "model_name": "net"}
        for threat, letters in verdicts.items()
        for index, letter in enumerate(letters)
        if letter != "_"
    ]
    return pandas.DataFrame(rows)


def test_samples_are_joined_by_their_id() -> None:
    found = compared(frame(ours="SBBSM", theirs="SBSBM"), "ours", "theirs")
    assert found == Agreement("net", "ours", "theirs", 5, 1, 2, ("2",), ("3",), (), 1.0)
    assert (found.share, found.agrees) == (0.6, True)
    assert found.remark == "net, ours: only ours breaks 2; only pyautoattack breaks 3"


@pytest.mark.parametrize(("ours", "theirs"), [("SI", "SS"), ("SS", "SF"), ("SS", "S_"), ("_S", "SS")])
def test_a_sample_without_verdict_is_no_agreement(ours: str, theirs: str) -> None:
    found = compared(frame(ours=ours, theirs=theirs), "ours", "theirs")
    assert len(found.unjudged) == 1
    assert not found.agrees
    assert "no verdict for" in found.remark


@pytest.mark.parametrize("count", [5, 6])
def test_a_difference_beyond_chance_is_no_agreement(count: int) -> None:
    """Five to nil has p = 2 / 32, six to nil p = 2 / 64."""
    found = compared(frame(ours="S" * 12, theirs="B" * count + "S" * (12 - count)), "ours", "theirs")
    assert found.p == pytest.approx(2 / 2**count)
    assert found.agrees == (count == 5)


def test_a_long_list_of_samples_is_cut() -> None:
    found = compared(frame(ours="S" * 12, theirs="B" * 12), "ours", "theirs")
    assert found.remark.endswith(" and 2 more")


def test_ours_and_theirs_agree_on_a_bundled_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"verify symvit_digits --threats apgd_ce(steps=5)@linf:0.06 --limit 12 --out {tmp_path} -q --json".split()
    assert cli.main(words, standalone_mode=False) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["ours"], found["theirs"]) == ("apgd_ce(steps=5)@linf:0.06", "pyautoattack/apgd_ce(steps=5)@linf:0.06")
    assert found["samples"] == 12
    assert found["both_break"] >= 3
    assert found["share"] >= 11 / 12
    assert cli.main(words[:-1], standalone_mode=False) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[:3] == ["model", "threat", "samples"]
    assert printed[1].split()[-1] == "yes"


def test_an_attack_that_does_nothing_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(model, images, labels, *, budget, draws, steps=100, restarts=1, rho=0.75, eot=1) -> Proposals:  # type: ignore[no-untyped-def]
        yield Candidate(images)

    monkeypatch.setattr(apgd, "apgd_ce", idle)
    words = f"verify symvit_digits --threats apgd_ce(steps=5)@linf:0.1 --limit 12 --out {tmp_path} -q".split()
    assert cli.main(words, standalone_mode=False) == 1


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    for threat, reason in (("pgd@linf:0.1", "no official counterpart"), ("clean", "expected one of our attacks")):
        with pytest.raises(BadValue, match=reason):
            verify(Matrix.of(threats=[threat]), tmp_path)
