"""The one door: found by name, imported when asked for, and strangers cannot shut it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from robustkpca import registry
from robustkpca.boards import Board
from robustkpca.errors import BadValue, UnknownName, Unusable
from robustkpca.installed import installed
from robustkpca.registry import Entry

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Announces a plug-in of attacks: a name and the source of its module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    points = list(entry_points(group="robustkpca.attacks"))

    def announce(name: str, source: str) -> None:
        (tmp_path / f"{name}_of_a_test.py").write_text(source)
        importlib.invalidate_caches()
        points.append(EntryPoint(name, f"{name}_of_a_test:TABLE", "robustkpca.attacks"))
        registry.refresh()

    monkeypatch.setattr(registry, "entry_points", lambda group: list(points))
    yield announce
    registry.refresh()
    for name in [name for name in sys.modules if name.endswith("_of_a_test")]:
        del sys.modules[name]


def every_entry() -> list[tuple[str, str]]:
    return [(group, name) for group in registry.GROUPS for name in registry.entries(group)]


@pytest.mark.parametrize(("group", "name"), every_entry())
def test_every_built_in_name_leads_to_a_thing(group: str, name: str) -> None:
    entry = registry.find(group, name)
    if entry.engine and not installed(entry.engine):
        pytest.skip(f"{entry.engine} is an extra and not installed")
    assert entry.load() is not None


@pytest.mark.parametrize(("group", "name"), every_entry())
def test_every_built_in_entry_says_what_it_is(group: str, name: str) -> None:
    entry = registry.find(group, name)
    assert entry.summary
    assert "\n" not in entry.summary
    assert entry.tags


@pytest.mark.parametrize("name", [name for name, one in registry.entries("attacks").items() if not one.engine])
def test_a_built_in_attack_has_the_name_of_its_function(name: str) -> None:
    assert registry.find("attacks", name).load().__name__ == name.replace("-", "_")


@pytest.mark.parametrize("name", [name for name in registry.entries("attacks") if name.startswith("pyautoattack/")])
def test_an_official_attack_has_the_name_of_its_function(name: str) -> None:
    assert registry.find("attacks", name).load().__name__ == name.partition("/")[2]


def test_a_built_in_entry_carries_its_package_and_version() -> None:
    assert registry.find("attacks", "pgd").origin == f"robustkpca=={registry.installed_version()}"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no attack named 'pdg'\. Did you mean 'pgd'"):
        registry.find("attacks", "pdg")


def test_a_board_is_called_a_board() -> None:
    with pytest.raises(UnknownName, match="no board named"):
        registry.find("leaderboards", "zzz")


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(BadValue, match="'colours': expected one of models, attacks"):
        registry.entries("colours")


def test_a_plug_in_is_found_under_its_own_prefix(install: Install) -> None:
    install("stranger", "TABLE = {'kick': 'stranger_of_a_test:kick'}\ndef kick(): return 'ouch'\n")
    assert registry.find("attacks", "stranger/kick").load()() == "ouch"


def test_a_plug_in_cannot_take_a_built_in_name(install: Install) -> None:
    install("stranger", "TABLE = {'pgd': 'stranger_of_a_test:pgd'}\n")
    assert registry.find("attacks", "pgd").target == "robustkpca.attacks.pgd:pgd"


def test_a_plug_in_cannot_speak_in_our_name(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """Its pgd, which gives the images back, would make every model robust."""
    install("robustkpca", "TABLE = {'pgd': 'robustkpca_of_a_test:pgd', 'mine': 'robustkpca_of_a_test:pgd'}\n")
    assert registry.find("attacks", "pgd").target == "robustkpca.attacks.pgd:pgd"
    assert "mine" not in registry.entries("attacks")
    assert "robustkpca announces under the same name; rename the entry point" in capsys.readouterr().err


@pytest.mark.parametrize("prefix", ["published", "timm", "x(y", "a b"])
def test_a_prefix_that_means_something_else_is_left_out(
    prefix: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(prefix, "TABLE = {'kick': 'robustkpca.errors:unknown'}\n")
    assert not any(name.startswith(prefix) for name in registry.entries("attacks"))
    assert f"the entry point {prefix!r} cannot stand before a name" in capsys.readouterr().err


@pytest.mark.parametrize("table", ["{'a b@c': 'm:f'}", "{5: 'm:f'}", "{'a': Entry('m:f', version='x')}",
                                   "{'a': Entry('m:f', tags='linf')}"])  # fmt: skip
def test_a_table_that_cannot_be_used_is_left_out_as_a_whole(
    table: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("broken", f"from robustkpca.registry import Entry\nTABLE = {table}\n")
    assert not any(name.startswith("broken") for name in registry.entries("attacks"))
    assert "BadValue" in capsys.readouterr().err


def test_a_thing_of_another_kind_is_named(install: Install) -> None:
    install("broken", "TABLE = {'number': 'broken_of_a_test:NUMBER'}\nNUMBER = 3\n")
    entry = registry.find("attacks", "broken/number")
    with pytest.raises(Unusable, match="'broken_of_a_test:NUMBER' from broken is of type int; expected a function"):
        entry.function()
    with pytest.raises(Unusable, match="of type int; expected a Board"):
        entry.value(Board)


def test_a_module_that_leaves_the_program_is_one_line(install: Install) -> None:
    install("inner", "import sys\nsys.exit(3)\n")
    install("leaving", "TABLE = {'exit': 'inner_of_a_test:f'}\n")
    with pytest.raises(Unusable, match="'inner_of_a_test:f' from leaving cannot be imported: SystemExit: 3"):
        registry.find("attacks", "leaving/exit").load()


def test_a_broken_plug_in_is_reported_and_the_others_stay(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("broken", "raise RuntimeError('no licence')\n")
    install("stranger", "TABLE = {'kick': 'stranger_of_a_test:kick'}\n")
    assert {"pgd", "stranger/kick"} <= set(registry.entries("attacks"))
    assert "plug-in 'broken' is left out: broken_of_a_test: RuntimeError: no licence" in capsys.readouterr().err


def test_a_table_of_nonsense_is_left_out(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("broken", "TABLE = {'kick': 3}\n")
    assert not any(name.startswith("broken/") for name in registry.entries("attacks"))
    assert "plug-in 'broken'" in capsys.readouterr().err


def test_a_module_is_not_imported_before_it_is_asked_for(install: Install) -> None:
    install("stranger", "TABLE = {'kick': 'module_that_is_not_there:kick'}\n")
    assert "stranger/kick" in registry.entries("attacks")


@pytest.mark.parametrize("target", ["module_that_is_not_there:kick", "robustkpca.errors:kick", "robustkpca.errors"])
def test_a_target_that_is_not_there_is_named(target: str) -> None:
    with pytest.raises(Unusable, match=f"'{target}' from stranger==1 cannot be imported"):
        Entry(target, origin="stranger==1").load()


def test_the_listing_cannot_be_changed_by_its_reader() -> None:
    registry.entries("attacks").clear()
    assert "pgd" in registry.entries("attacks")


def test_a_missing_installation_says_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    registry.refresh()
    with pytest.raises(Unusable, match="pip install -e"):
        registry.entries("attacks")


def test_listing_and_parsing_threats_imports_no_torch_before_an_attack_is_loaded() -> None:
    code = (
        "import sys; from robustkpca import registry, budget; registry.entries('attacks'); registry.entries('models');"
        "budget.Budget.parse('linf:8/255'); import robustkpca.threats; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
