"""A run that is killed again and again ends in the same table, and does nothing twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import pytest

from robustkpca.boards import leaderboard
from robustkpca.formats import FORMATS, render
from robustkpca.store import read

MODELS, THREATS, SAMPLES, SHARD = (
    ("symvit_digits", "rpc_symvit_digits"),
    ("clean", "pgd@linf:0.05", "fgsm@linf:0.05"),
    60,
    10,
)
SHARDS = len(MODELS) * len(THREATS) * SAMPLES // SHARD
COMMAND = [
    sys.executable,
    *("-m", "robustkpca", "score", *MODELS, "--quiet"),
    *("--limit", str(SAMPLES), "--shard-size", str(SHARD), "--threats", *THREATS, "--out"),
]


def start(folder: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*COMMAND, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def shards(folder: Path) -> list[Path]:
    return sorted((folder / "records").glob("*/*/shard-*.parquet"))


def finish(folder: Path) -> None:
    process = start(folder)
    _, complaint = process.communicate(timeout=280)
    assert process.returncode == 0, complaint.decode()


def tables(folder: Path) -> dict[str, str]:
    filled = leaderboard(read(folder))
    return {form: render(filled, form) for form in FORMATS}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(folder)
    return folder


def check_killed(folder: Path, undisturbed: Path, kills: int) -> None:
    """Kill after random numbers of shards, and at a random moment of the next one."""
    chance = random.Random(kills)
    after = sorted(chance.sample(range(SHARDS - 1), kills))
    for count in after:
        process = start(folder)
        try:
            while len(shards(folder)) < count:
                assert process.poll() is None, process.communicate()[1].decode()
                time.sleep(0.01)
            time.sleep(chance.random() * 0.3)
        finally:
            process.kill()
            process.communicate()
    assert len(shards(folder)) < SHARDS or kills < 3, "every kill came too late to disturb anything"
    finish(folder)
    assert tables(folder) == tables(undisturbed)
    met: Counter[tuple[str, str]] = Counter()
    for path in shards(folder):
        met.update(
            (path.parent.as_posix(), sample) for sample in pyarrow.parquet.read_table(path)["sample"].to_pylist()
        )
    assert set(met.values()) == {1}
    assert len(met) == len(MODELS) * len(THREATS) * SAMPLES


def test_two_kills_change_nothing_and_nothing_runs_twice(tmp_path: Path, undisturbed: Path) -> None:
    check_killed(tmp_path / "killed", undisturbed, 2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_kills_change_nothing_and_nothing_runs_twice(tmp_path: Path, undisturbed: Path) -> None:
    check_killed(tmp_path / "killed", undisturbed, 10)


def test_a_file_cut_off_in_the_middle_of_writing_is_no_shard(tmp_path: Path, undisturbed: Path) -> None:
    first = shards(undisturbed)[0]
    folder = tmp_path / "torn"
    torn = folder / first.relative_to(undisturbed).with_suffix(".12345.tmp")
    torn.parent.mkdir(parents=True)
    torn.write_bytes(first.read_bytes()[:200])
    finish(folder)
    assert tables(folder) == tables(undisturbed)
