"""A stranger's package, installed as its users would install it, comes through the same door as what is built in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from robustkpca.store import ResultStore, read

PACKAGE = Path(__file__).parent / "plugin_package"
NAMES = {
    "models": ["example/nearest_mean"],
    "attacks": ["example/lighten", "example/restarted_fgsm"],
    "corruptions": ["example/dim"],
    "boards": ["example/lights"],
}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages that holds the plug-in; the environment stays as it is."""
    folder = tmp_path_factory.mktemp("plugins")
    source = shutil.copytree(PACKAGE, folder / "source")  # building leaves files behind
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*install, "--disable-pip-version-check", "--target", str(folder / "site"), str(source)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


def python(site: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a folder of packages beside those of the environment."""
    environment = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"} | variables
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, encoding="utf-8", env=environment, cwd=site.parent
    )


def command(site: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return python(site, "-m", "robustkpca", *arguments, **variables)


@pytest.fixture(scope="session")
def scored(site: Path) -> subprocess.CompletedProcess[str]:
    """One run of the plug-in's model on the plug-in's board; its records lie in ``results`` beside the site."""
    return command(site, "score", "example/nearest_mean", "--threats", "example/lights", "--limit", "60", "--json")


@pytest.mark.parametrize("kind", NAMES)
def test_its_names_are_listed_with_its_prefix_and_version(site: Path, kind: str) -> None:
    done = command(site, "list", kind, "example/", "--json")
    assert done.stderr == ""
    rows = json.loads(done.stdout)
    assert sorted(row["name"] for row in rows) == NAMES[kind]
    assert {row["from"] for row in rows} == {"robustkpca-example==0.3.1"}


def test_its_letters_do_not_stop_a_terminal_without_them(site: Path) -> None:
    done = command(site, "list", "attacks", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"M\xfcller 2025" in done.stdout


def test_its_model_is_scored_on_its_board(scored: subprocess.CompletedProcess[str]) -> None:
    assert scored.returncode == 0, scored.stderr
    (table,) = json.loads(scored.stdout)
    (row,) = table["rows"]
    assert (table["board"]["title"], row["name"]) == ("Digits by night", "example/nearest_mean")
    clean, dark, light, fgsm = (cell["value"] for cell in row["cells"])
    assert clean > 0.75
    assert fgsm < light
    assert dark < clean


def test_its_version_is_written_down(site: Path, scored: subprocess.CompletedProcess[str]) -> None:
    assert scored.returncode == 0
    headers = {header["threat_label"]: header for header in ResultStore(site.parent / "results").headers()}
    assert {header["model"]["code"] for header in headers.values()} == {"robustkpca-example==0.3.1"}
    assert headers.pop("clean")["versions"].get("robustkpca-example") is None
    assert sorted(headers) == ["example/dim:3", "example/lighten@linf:0.1", "example/restarted_fgsm@linf:0.1"]
    assert {header["versions"]["robustkpca-example"] for header in headers.values()} == {"0.3.1"}


def test_its_records_are_read_without_it(site: Path, scored: subprocess.CompletedProcess[str]) -> None:
    assert scored.returncode == 0
    assert len(read(site.parent / "results")) == 4 * 60


def test_its_parts_keep_the_contract_and_its_board_is_filled_again(
    site: Path, scored: subprocess.CompletedProcess[str]
) -> None:
    code = """
import sys, torch
from robustkpca.commands import main
from robustkpca.testing import check_attack, check_corruption, check_model
check_attack("example/restarted_fgsm@linf:0.1")
check_attack("example/restarted_fgsm(restarts=2)@l2:0.5")
check_attack("example/lighten@linf:0.1")
check_corruption("example/dim")
check_model("example/nearest_mean", torch.rand(5, 1, 8, 8), classes=10)
sys.argv = "robustkpca leaderboard results --board example/lights --format json".split()
main()
"""
    done = python(site, "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["rows"] == json.loads(scored.stdout)[0]["rows"]


@pytest.mark.parametrize("failure", ["import missing_library", "raise SystemExit('no licence')", "MODELS = 3 / 0"])
def test_where_it_cannot_be_imported_it_is_named_and_the_rest_works(site: Path, tmp_path: Path, failure: str) -> None:
    broken = shutil.copytree(site, tmp_path / "site")
    (broken / "robustkpca_example" / "__init__.py").write_text(failure)
    code = """
from robustkpca import registry
for group in registry.GROUPS:
    assert not any(name.startswith("example/") for name in registry.entries(group))
print(registry.find("attacks", "pgd").target)
"""
    done = python(broken, "-c", code)
    assert (done.returncode, done.stdout) == (0, "robustkpca.attacks.pgd:pgd\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("robustkpca: plug-in 'example' is left out: robustkpca_example: ")


def test_beside_a_broken_one_a_run_goes_on(site: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(site, tmp_path / "site")
    (broken / "robustkpca_example" / "__init__.py").write_text("import missing_library")
    done = command(broken, "score", "symvit_digits", "--threats", "clean", "fgsm@linf:0.05", "--limit", "8", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "symvit_digits" in done.stdout
    assert done.stderr == (
        "robustkpca: plug-in 'example' is left out: robustkpca_example: "
        "ModuleNotFoundError: No module named 'missing_library'\n"
    )
