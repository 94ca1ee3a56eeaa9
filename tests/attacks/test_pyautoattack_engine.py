"""The authors' package through our door: the same images as when it is called by hand, whatever the model."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from pyautoattack import AutoAttack
from torch import Tensor, nn

import robustkpca as rk
from robustkpca.adversary import Candidate, Classifier, Proposals
from robustkpca.attacks import pyautoattack_engine as engine
from robustkpca.attacks.foreign import shard_seed
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.errors import BadValue
from robustkpca.evaluation import run_matrix
from robustkpca.matrix import Matrix
from robustkpca.meter import MeteredClassifier
from robustkpca.records import Verdict
from robustkpca.store import ResultStore
from robustkpca.threats import ThreatModel, official

FEW = {
    "apgd_ce": {"steps": 5},
    "apgd_dlr": {"steps": 5},
    "apgd_t": {"steps": 3},
    "fab": {"steps": 3},
    "fab_t": {"steps": 3},
}
SHORT: dict[str, dict[str, Any]] = {**FEW, "square": {"queries": 200}}
"""Options that make the attacks end within a second."""


def called_by_hand(robust: Any, name: str, rows: Tensor, budget: Budget, seed: int, **options: int) -> Tensor:
    norm = {"linf": "Linf", "l2": "L2", "l1": "L1"}[budget.norm.value]
    auto = AutoAttack(
        robust.model.network,
        attacks=[name.replace("_", "-")],
        version="custom",
        norm=norm,
        eps=budget.length,
        seed=seed,
    )
    for member in (auto.apgd, auto.apgd_targeted):
        member.__init__(  # its step sizes are planned here
            robust.model.network, n_iter=options.get("steps", 100), norm=norm, eps=budget.length, device="cpu",
            use_largereps=norm == "L1", logger=auto.logger,
        )  # fmt: skip
    auto.fab.n_iter, auto.fab.n_restarts = options.get("steps", 100), 1
    auto.square.n_queries = options.get("queries", 5000)
    found: Tensor = auto.run_standard_evaluation(robust.images[rows], robust.labels[rows], batch_size=64)[0]
    return found


@pytest.mark.parametrize("text", ["linf:0.1", "l2:0.5", "l1:3"])
@pytest.mark.parametrize("name", SHORT)
def test_an_attack_gives_the_images_that_the_package_gives(robust: Any, streams: Any, name: str, text: str) -> None:
    budget, rows = Budget.parse(text), robust.correct().nonzero().squeeze(1)[:24]
    draws = streams(len(rows))
    seed = shard_seed(draws.narrow(torch.arange(len(rows))), robust.images[rows])
    with torch.random.fork_rng(devices=[]):
        expected = called_by_hand(robust, name, rows, budget, seed, **SHORT[name])
    meter = MeteredClassifier(robust.model, len(rows), robust.images.device)
    found = getattr(engine, name)(
        meter, robust.images[rows], robust.labels[rows], budget=budget, draws=draws, **SHORT[name]
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    changed = (found != robust.images[rows]).flatten(1).any(1)
    assert bool(changed.any())
    assert not bool(changed.all())


def test_an_unchanged_image_keeps_its_bits_and_its_precision(robust: Any, streams: Any) -> None:
    images = robust.images[:8].double() + 1e-12
    meter = MeteredClassifier(robust.model, 8, images.device)
    found = engine.apgd_ce(
        meter, images, robust.labels[:8], budget=Budget.parse("linf:0.0001"), draws=streams(8), steps=2
    )
    assert torch.equal(found, images)


class Tiny(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(16, classes)
        self.layer.weight.data = torch.randn(classes, 16, generator=torch.Generator().manual_seed(0))

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.layer(images.flatten(1))
        return out


def images_of(classes: int, count: int = 6) -> tuple[nn.Module, Tensor, Tensor]:
    network, images = Tiny(classes), torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    return network, images, network(images).argmax(1)


@pytest.mark.parametrize("classes", [4, 5, 9, 10])
@pytest.mark.parametrize("radius", ["0.0001", "0.3"])
def test_few_classes_get_as_many_targets_as_there_are(classes: int, radius: str) -> None:
    """auto-attack 110 and 76: the package itself stops with an index error, and only where samples survive till then."""
    network, images, labels = images_of(classes)
    for name in ("apgd_t(steps=3)", "fab_t(steps=3)"):
        result = rk.attack(network, images, labels, f"pyautoattack/{name}@linf:{radius}")
        assert set(result.details) == {""}


@pytest.mark.parametrize(
    ("threat", "classes"), [("apgd_dlr", 2), ("apgd_t", 3), ("autoattack", 3), ("autoattack(version=rand)", 2)]
)
def test_too_few_classes_fail_in_one_line(threat: str, classes: int) -> None:
    network, images, labels = images_of(classes)
    result = rk.attack(network, images, labels, f"pyautoattack/{threat}@linf:0.1")
    attacked = [detail for detail in result.details if detail]
    assert attacked
    assert {Verdict.FAILED, Verdict.MISTAKEN} >= set(result.verdicts)
    for detail in attacked:
        assert f"needs a model with at least {classes + 1} classes, this one has {classes}" in detail
        assert "\n" not in detail


@pytest.mark.parametrize("name", SHORT)
def test_one_image_alone_and_none_standing_are_no_exception(name: str) -> None:
    network, images, labels = images_of(5)
    options = ",".join(f"{key}={value}" for key, value in SHORT[name].items())
    threat = f"pyautoattack/{name}({options})@linf:0.1"
    assert rk.attack(network, images[:1], labels[:1], threat).details == ("",)
    wrong = rk.attack(network, images, (labels + 1) % 5, threat)
    assert set(wrong.verdicts) == {Verdict.MISTAKEN}
    assert wrong.backwards.sum() == 0


@pytest.mark.parametrize(
    "threat",
    ["apgd_ce(steps=0)", "apgd_dlr(eot=0)", "apgd_t(targets=0)", "fab(restarts=0)", "fab_t(steps=0)", "square(p_init=0)",
     "autoattack(version=best)"],
)  # fmt: skip
def test_wrong_options_are_found_before_anything_runs(threat: str) -> None:
    with pytest.raises(BadValue, match="pyautoattack/"):
        run_matrix(Matrix.of(threats=[f"pyautoattack/{threat}@linf:0.1"], models=["no such model"]), "nowhere")


def test_a_radius_of_zero_changes_nothing() -> None:
    network, images, labels = images_of(5)
    assert rk.attack(network, images, labels, "pyautoattack/apgd_ce@linf:0").robust_accuracy == 1


def test_everything_is_as_before_and_the_same_comes_again() -> None:
    network, images, labels = images_of(6, 12)
    network.train()
    before, state, trace = images.clone(), torch.get_rng_state(), sys.gettrace()
    first = rk.attack(network, images, labels, "pyautoattack/square(queries=20)@linf:0.05")
    again = rk.attack(network, images, labels, "pyautoattack/square(queries=20)@linf:0.05")
    assert torch.equal(first.images, again.images)
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert network.training
    assert sys.gettrace() is trace


@pytest.mark.slow
@pytest.mark.parametrize("version", ["standard", "plus", "rand"])
def test_a_whole_version_breaks_what_its_first_member_breaks(version: str) -> None:
    network, images, labels = images_of(5, 3)
    result = rk.attack(network, images, labels, f"pyautoattack/autoattack(version={version})@linf:0.05")
    assert result.details == ("",) * 3
    member = rk.attack(network, images, labels, "apgd_ce@linf:0.05")
    assert [verdict.value for verdict in result.verdicts] == [verdict.value for verdict in member.verdicts]
    assert set(result.verdicts) == {Verdict.SURVIVED, Verdict.BROKEN}


# Ours and theirs


def test_official_is_a_prefix_and_keeps_the_written_options() -> None:
    def there(text: str) -> str:
        return official(ThreatModel.parse(text)).label

    assert there("apgd_ce(steps=7)@l2:0.5") == "pyautoattack/apgd_ce(steps=7)@l2:0.5"
    assert there("square(queries=9,reach_edges=false)@linf:4/255") == "pyautoattack/square(queries=9)@linf:4/255"
    assert there("autoattack(version=plus)@l2:1") == "pyautoattack/autoattack(version=plus)@l2:1"
    assert there("worst-of(fab@l2:1,apgd_t@l2:1)") == "worst-of(pyautoattack/fab@l2:1,pyautoattack/apgd_t@l2:1)"
    assert there("clean") == "clean"
    assert there("pyautoattack/fab@l1:2") == "pyautoattack/fab@l1:2"


@pytest.mark.parametrize("text", ["pgd@linf:8/255", "published/pgd@linf:8/255", "noise@l2:1"])
def test_what_has_no_counterpart_is_named(text: str) -> None:
    with pytest.raises(BadValue, match=rf"threat '{text}' has no official counterpart; pyautoattack has apgd_ce, "):
        official(ThreatModel.parse(text))


def test_a_run_has_its_own_key_and_says_how_it_was_seeded(tmp_path: Any) -> None:
    options = {"models": ["symvit_digits"], "limit": 12, "threats": ["clean", "apgd_ce(steps=3)@linf:0.05"]}
    run_matrix(Matrix.of(**options), tmp_path)
    run = run_matrix(Matrix.of(**options, engine="official"), tmp_path)
    assert list(run.board.threats) == ["clean", "pyautoattack/apgd_ce(steps=3)@linf:0.05"]
    frame = run.frame()
    flags = frame.drop_duplicates("threat_label").set_index("threat_label")["flags"]
    assert flags["clean"] == ""
    assert flags["pyautoattack/apgd_ce(steps=3)@linf:0.05"].startswith("seed per shard: pyautoattack draws")
    headers = {header["threat_label"]: header for header in ResultStore(tmp_path).headers()}
    assert headers["pyautoattack/apgd_ce(steps=3)@linf:0.05"]["versions"]["pyautoattack"].startswith("0.2")
    assert set(headers) == {"clean", "apgd_ce(steps=3)@linf:0.05", "pyautoattack/apgd_ce(steps=3)@linf:0.05"}


def test_the_foreign_attack_is_judged_like_any_other() -> None:
    """A package that claims success with images outside the budget is not believed."""
    network, images, labels = images_of(5)

    def boasting(model: Classifier, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Proposals:
        yield Candidate(1 - images)

    from robustkpca.judge import judge_attack
    from robustkpca.models.loading import wrap

    draws = Draws.of([str(index) for index in range(6)], seed=0, threat="t")
    result = judge_attack(wrap(network), boasting, images, labels, budget=Budget.parse("linf:0.01"), draws=draws)
    assert set(result.verdicts) == {Verdict.INVALID}
