"""Files that another package has overwritten are found, and the command that is offered mends them."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
import venv
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from robustkpca.installed import Damage, damage, installed

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Write a package as pip does, the last one on top."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(package: str, version: str, **files: str) -> Path:
        info = tmp_path / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        lines = []
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_py", ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            digest = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{path.relative_to(tmp_path).as_posix()},sha256={digest},{len(text)}")
        (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,"]) + "\n")
        importlib.invalidate_caches()
        return tmp_path

    return write


def test_a_whole_package_has_no_damage(install: Install) -> None:
    install("wholepkg", "1.0", wholepkg__a_py="x = 1\n")
    assert damage("wholepkg") is None


def test_a_package_that_is_not_there_has_no_damage() -> None:
    assert damage("no-such-package-anywhere") is None
    assert installed("no-such-package-anywhere") == ""


def test_an_overwritten_file_is_found_and_the_mend_is_named(install: Install) -> None:
    install("robustpkg", "1.1.1", robustpkg__zoo_py="models = 76\n", robustpkg__eval_py="pass\n")
    install("attackspkg", "3.5.1", attackspkg__a_py="x = 1\n", robustpkg__zoo_py="models = 57\n")
    found = damage("robustpkg")
    mend = "pip install --force-reinstall --no-deps robustpkg==1.1.1"
    assert found == Damage("robustpkg", "1.1.1", ("robustpkg/zoo.py",), 2)
    assert found.mend == mend
    assert str(found) == (
        "package robustpkg 1.1.1 is damaged: 1 of 2 files are not those that pip installed, such as robustpkg/zoo.py; "
        f"mend it with '{mend}'"
    )
    assert damage("attackspkg") is None


def test_a_missing_file_is_damage(install: Install) -> None:
    folder = install("gonepkg", "1.0", gonepkg__a_py="x = 1\n", gonepkg__b_py="y = 1\n")
    (folder / "gonepkg" / "b.py").unlink()
    found = damage("gonepkg")
    assert found is not None
    assert found.files == ("gonepkg/b.py",)


def test_what_this_very_environment_has_is_whole() -> None:
    assert installed("pyautoattack")
    assert damage("pyautoattack") is None


ZOO = """
import sys, types, pathlib, pyautoattack
shim = types.ModuleType("pkg_resources")
shim.resource_filename = lambda package, name: str(pathlib.Path(sys.modules[package].__file__).parent / name)
sys.modules["pkg_resources"] = shim
sys.modules["autoattack"] = pyautoattack
sys.modules["autoattack.state"] = pyautoattack.state
"""
"""robustbench 1.1.1 imports two modules that it does not ask for; stand-ins let it be imported."""


@pytest.mark.slow
def test_torchattacks_and_robustbench_work_in_one_environment_after_the_mend(tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python*/site-packages"))
    ours = [path for path in sys.path if "site-packages" in path] + [str(Path(__file__).parent.parent)]
    (site / "reused.pth").write_text("\n".join(ours) + "\n")

    def pip(*arguments: str) -> None:
        command = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode and ("No matching distribution" in done.stderr or "Connection" in done.stderr):
            pytest.skip(f"{arguments[-1]} cannot be fetched here")
        assert done.returncode == 0, done.stderr

    def run(code: str) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
            "OMP_NUM_THREADS": "1"
        }
        return subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, env=environment, cwd=Path(__file__).parent.parent
        )

    needed = "geotorch gdown torchdiffeq beautifulsoup4 soupsieve requests urllib3 charset-normalizer certifi"
    for package in ("robustbench==1.1.1", *needed.split()):
        pip("--ignore-installed", package)
    zoo = ZOO + "from robustbench.model_zoo.cifar10 import cifar_10_models as zoo\nprint(sum(map(len, zoo.values())))"
    whole = run(zoo)
    assert whole.returncode == 0, whole.stderr
    pip("--ignore-installed", "torchattacks==3.5.1")
    attack = """
import sys, torch, robustkpca, logging
logging.getLogger("robustkpca").addHandler(logging.StreamHandler(sys.stderr))
result = robustkpca.attack(torch.nn.Flatten(), torch.rand(2, 1, 2, 2), [0, 1], "torchattacks/PGD@linf:0.1")
print(result.details)
"""
    used = run(attack)
    assert used.returncode == 0, used.stderr
    assert used.stdout == "('', '')\n"
    assert "package robustbench 1.1.1 is damaged: " in used.stderr
    mend = used.stderr.partition("mend it with 'pip install ")[2].partition("'")[0]
    assert mend == "--force-reinstall --no-deps robustbench==1.1.1"
    assert run(zoo).stdout != whole.stdout
    pip(*mend.split())
    used = run(attack)
    assert (used.returncode, used.stdout, used.stderr) == (0, "('', '')\n", "")
    both = run(attack + zoo)
    assert both.returncode == 0, both.stderr
    assert both.stdout.splitlines()[-1] == whole.stdout.strip()
