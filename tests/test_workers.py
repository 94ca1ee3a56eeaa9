"""Shards dealt out: each once, again where a worker is lost, and the same records whoever did them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch

import robustkpca as rk
from robustkpca.crews import crew_of, devices_of
from robustkpca.errors import BadValue, Unusable
from robustkpca.jobs import Desk, Job, Records, code_fingerprint
from robustkpca.matrix import ModelChoice
from robustkpca.store import Cell
from robustkpca.workers import WorkerLost, deal

CELL = Cell("model", "clean", 1, "data", 0)


def jobs(count: int) -> list[Job]:
    choice = ModelChoice(name="symvit_digits")
    return [
        Job("classification", CELL, (n,), choice, "auto", "digits", None, count, (), {}, code_fingerprint())
        for n in range(count)
    ]


class Crew:
    """Workers that answer in the order in which they were asked; some are lost over certain jobs."""

    def __init__(self, size: int, losses: dict[int, int] | None = None, stillborn: int = 0) -> None:
        self.size = size
        self.losses = Counter(losses or {})
        self.stillborn = stillborn
        self.hired = 0
        self.given: list[int] = []
        self.jobs: dict[int, Job | None] = {}
        self.closed = False

    def hire(self) -> int:
        self.hired += 1
        self.jobs[self.hired] = None
        return self.hired

    def send(self, handle: int, job: Job) -> int:
        self.given.append(job.positions[0])
        self.jobs[handle] = job
        return handle

    def wait(self, handles: Sequence[int], seconds: float) -> list[int]:
        assert len(handles) <= self.size
        return [handles[0]]

    def answer(self, handle: int) -> list[Records] | None:
        job = self.jobs[handle]
        if job is None and self.stillborn:
            self.stillborn -= 1
            raise WorkerLost("died at birth")
        if job is not None and self.losses[job.positions[0]]:
            self.losses[job.positions[0]] -= 1
            raise WorkerLost("killed")
        return [] if job else None

    def close(self) -> None:
        self.closed = True


def done(crew: Crew, count: int) -> list[int]:
    return sorted(job.positions[0] for job, _ in deal(jobs(count), crew))


@pytest.mark.parametrize("size", [1, 2, 5, 50])
def test_every_job_is_done_once(size: int) -> None:
    crew = Crew(size)
    assert done(crew, 20) == list(range(20))
    assert sorted(crew.given) == list(range(20))
    assert crew.hired <= min(size, 20)
    assert crew.closed


def test_a_lost_worker_costs_its_own_job_alone() -> None:
    crew = Crew(3, losses={4: 2, 9: 1})
    assert done(crew, 20) == list(range(20))
    assert Counter(crew.given) == Counter(range(20)) + Counter({4: 2, 9: 1})


def test_the_last_worker_that_is_lost_is_replaced() -> None:
    assert done(Crew(1, losses={19: 1}), 20) == list(range(20))


def test_a_job_that_ends_every_worker_stops_the_run_with_what_is_done_kept() -> None:
    crew = Crew(1, losses={3: 9})
    kept: list[int] = []
    dealt = deal(jobs(5), crew)
    with pytest.raises(Unusable, match=r"ended its worker 3 times \(killed\)"):
        kept.extend(job.positions[0] for job, _ in dealt)
    assert kept == [0, 1, 2]
    assert crew.closed


def test_workers_that_never_start_stop_the_run() -> None:
    assert done(Crew(2, stillborn=2), 6) == list(range(6))
    with pytest.raises(Unusable, match="3 workers in a row ended before their first sign"):
        done(Crew(2, stillborn=9), 6)


def test_the_crew_is_closed_where_the_driver_stops() -> None:
    crew = Crew(2)
    dealt = deal(jobs(5), crew)
    next(dealt)
    dealt.close()
    assert crew.closed


def test_nothing_to_do_needs_nobody() -> None:
    assert done(Crew(2), 0) == []


@pytest.mark.parametrize(
    ("workers", "device", "message"),
    [
        ("local:0", "cpu", "expected a number of processes from 1 to 1024, such as local:2"),
        ("local:many", "cpu", "expected a number of processes"),
        ("dask", "cpu", "expected local, local:N, ray, ray:ADDRESS"),
        ("rays", "cpu", "expected local, local:N, ray, ray:ADDRESS"),
        ("local", "cuda:0,,cuda:1", "expected devices such as cuda:0,cuda:1"),
        ("ray", "cuda:0,cuda:1", "Ray gives each worker its own; expected one device"),
    ],
)
def test_what_is_no_crew_is_refused(workers: str, device: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        crew_of(workers, device)


def test_one_process_needs_no_crew_and_several_devices_do() -> None:
    assert crew_of("local", "cpu") is None
    several = crew_of("local", "cpu, cpu")
    assert several is not None
    assert several.size == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_all_gpus_of_a_machine_without_any_is_refused() -> None:
    with pytest.raises(BadValue, match="torch finds no GPU here"):
        devices_of("all")


def test_a_worker_refuses_other_code_data_and_weights(tmp_path: Path) -> None:
    job = jobs(1)[0]
    with pytest.raises(
        Unusable, match=rf"other code or libraries than the driver \({code_fingerprint()} instead of 0{{16}}\)"
    ):
        Desk().do(replace(job, code="0" * 16))
    with pytest.raises(Unusable, match=r"a worker finds digits-.* at digits; expected data, as the driver does"):
        Desk().do(job)
    with pytest.raises(Unusable, match=r"a worker loads symvit-digits-.*; expected model, as the driver does"):
        Desk().do(replace(job, cell=replace(CELL, data=rk.data.open_data("digits").spec.id)))


NET = """
import os, signal, multiprocessing, torch

class Net(torch.nn.Module):
    preprocessing = "preprocessing(channels=1)"

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        torch.manual_seed(0)
        torch.nn.init.normal_(self.layer.weight)

    def forward(self, x):
        if multiprocessing.parent_process() is not None:
            FATE
        return self.layer(x.flatten(1))

def build():
    return Net()
"""
THREATS = ["clean", "pgd(steps=2)@linf:0.05", "noise@linf:0.05"]


def scored(folder: Path, fate: str, workers: str, **options: Any) -> pandas.DataFrame:
    folder.mkdir(exist_ok=True)
    path = folder / "net.py"
    path.write_text(NET.replace("FATE", fate))
    frame = rk.score(f"{path}:build", THREATS, workers=workers, limit=40, shard_size=16, **options)
    return frame.drop(columns=["seconds", "command", "model", "model_name", "flags", "planned"], errors="ignore")


KILLED_ONCE = """
            if not os.path.exists("MARK"):
                open("MARK", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
"""


def test_two_processes_write_what_one_writes_and_a_killed_one_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / "mark"
    with caplog.at_level(logging.WARNING):
        dealt = scored(tmp_path / "a", KILLED_ONCE.replace("MARK", str(mark)).strip(), "local:2")
    assert mark.exists()
    assert caplog.text.count("a worker was lost (exit code -9); its shard of 16 samples is given out again") == 1
    alone = scored(tmp_path / "b", "pass", "local")
    pandas.testing.assert_frame_equal(dealt, alone, check_dtype=False, check_categorical=False)


def test_what_a_worker_raises_ends_the_run_in_one_line(tmp_path: Path) -> None:
    """The model's file is another one by the time that the worker reads it."""
    path = tmp_path / "net.py"
    change = f"\nwith open({str(path)!r}, 'a') as file:\n    file.write('# changed')\n"
    path.write_text(NET.replace("FATE", "pass") + change)
    with pytest.raises(Unusable, match="Are its file and its weights the same there"):
        rk.score(f"{path}:build", "clean", workers="local:1", limit=8)
