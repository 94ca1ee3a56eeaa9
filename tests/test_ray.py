"""Two Ray nodes on this machine: `pytest -m ray`. Skipped where Ray is not installed.

Ray replaces 127.0.0.1 by the machine's outer address, so the nodes have other addresses of the loopback.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from robustkpca.installed import installed

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(not installed("ray"), reason="ray is an extra and not installed: pip install 'robustkpca[ray]'"),
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address"),
]
HEAD, OTHER = "127.0.0.2", "127.0.0.3"
NET = """
import os, signal, torch

class Net(torch.nn.Module):
    preprocessing = "preprocessing(channels=1)"

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        torch.manual_seed(0)
        torch.nn.init.normal_(self.layer.weight)

    def forward(self, x):
        mark = os.environ.get("KILLED_ONCE")
        if mark and "ray::" in open("/proc/self/cmdline").read() and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x.flatten(1))

def build():
    return Net()
"""


@dataclass(frozen=True)
class Nodes:
    """A running cluster of two nodes with a core each."""

    address: str
    environment: dict[str, str]
    mark: Path


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("ray")
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    environment = os.environ | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "KILLED_ONCE": str(folder / "killed"),
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with socket.socket() as free:
        free.bind((HEAD, 0))
        address = f"{HEAD}:{free.getsockname()[1]}"
    common = ["--num-cpus=1", "--block", "--disable-usage-stats"]
    head = ["--head", f"--node-ip-address={HEAD}", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false"]
    other = [f"--address={address}", f"--node-ip-address={OTHER}"]
    started = []
    try:
        for arguments in (head, other):
            with (folder / f"node{len(started)}.log").open("wb") as log:
                command = [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments, *common]
                started.append(
                    subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
                )
            _wait_for(folder / f"node{len(started) - 1}.log", "Ray runtime started", started[-1])
        yield Nodes(address, environment, folder / "killed")
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        if text in log.read_text(errors="replace"):
            return
        assert process.poll() is None, log.read_text(errors="replace")
        time.sleep(0.5)
    raise AssertionError(log.read_text(errors="replace"))


def score(folder: Path, workers: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    (folder / "net.py").write_text(NET)
    command = [sys.executable, "-m", "robustkpca", "score", "net.py:build", "symvit_digits", "--threats", "clean"]
    command += ["pgd(steps=5)@linf:0.05", "square(queries=20)@linf:0.05", "--limit", "64", "--shard-size", "16"]
    return subprocess.run(
        [*command, "--workers", workers, "--out", f"out-{workers[:3]}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_two_nodes_print_the_local_table_though_a_worker_is_killed(nodes: Nodes, tmp_path: Path) -> None:
    local = score(tmp_path, "local", nodes.environment)
    assert local.returncode == 0, local.stderr
    assert not nodes.mark.exists()
    dealt = score(tmp_path, f"ray:{nodes.address}", nodes.environment)
    assert dealt.returncode == 0, dealt.stderr
    assert nodes.mark.exists()
    assert dealt.stderr.count("its shard of 16 samples is given out again") == 1
    assert dealt.stdout == local.stdout
    shards = [len(list((tmp_path / out / "records").glob("*/*/shard-*.parquet"))) for out in ("out-loc", "out-ray")]
    assert shards == [24, 24]


def test_a_client_without_the_token_is_refused_in_one_line(nodes: Nodes, tmp_path: Path) -> None:
    other = tmp_path / "token"
    other.write_text(secrets.token_hex(32))
    refused = score(tmp_path, f"ray:{nodes.address}", nodes.environment | {"RAY_AUTH_TOKEN_PATH": str(other)})
    assert refused.returncode == 2
    assert "Ray cannot be joined" in refused.stderr.splitlines()[-1]


def test_a_ray_of_ones_own_is_started_and_ended(nodes: Nodes, tmp_path: Path) -> None:
    environment = {key: value for key, value in nodes.environment.items() if not key.startswith(("RAY_A", "KILLED"))}
    done = score(tmp_path, "ray(workers=1)", environment)
    assert done.returncode == 0, done.stderr
    assert "### Robust accuracy" in done.stdout


def test_nobody_answers_at_the_address(tmp_path: Path) -> None:
    done = score(tmp_path, "ray:127.0.0.2:1", dict(os.environ))
    assert done.returncode == 2
    assert "Ray cannot be joined, nobody answers at 127.0.0.2:1" in done.stderr.splitlines()[-1]
