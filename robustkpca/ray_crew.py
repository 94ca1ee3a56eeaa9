"""Workers that are actors of Ray, on one machine or many. The only module that imports Ray."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

from robustkpca.calls import Call, complete
from robustkpca.errors import BadValue, Unusable
from robustkpca.jobs import Desk, Job, Records
from robustkpca.workers import WorkerLost


def _options(*, address: str = "", workers: int = 0, cpus: int = 1, gpus: float = -1.0) -> None:
    """Name the options of ``ray(...)`` with their defaults."""


class Actor(Desk):
    """A desk that says when it has started."""

    def begin(self, folder: str, threads: int) -> None:
        """Give the first sign, work where the driver does, and use as many threads as Ray has set cores aside."""
        import torch

        if Path(folder).is_dir():  # otherwise only what has a full path is found
            os.chdir(folder)
        torch.set_num_threads(threads)


class RayCrew:
    """Actors that Ray places where there is room.

    Args:
        size: Most actors at once.
        device: ``cpu``, or ``cuda`` for the GPUs that Ray gives each.
        cpus: Cores set aside for each.
        gpus: GPUs set aside for each; parts are allowed.
        leave: Whether this process leaves Ray in the end, because it was not there before.
    """

    def __init__(self, size: int, device: str, cpus: int, gpus: float, *, leave: bool = True) -> None:
        self.size = size
        self.device = device
        self.cpus = cpus
        self.gpus = gpus
        self.leave = leave
        self._actors: dict[Any, Any] = {}
        self._held = ExitStack()

    @classmethod
    def of(cls, call: Call, device: str) -> RayCrew:
        """Join a running Ray, or start one on this machine where no address is given.

        Args:
            call: ``ray(address=HOST:PORT,workers=N,cpus=N,gpus=N)``; without ``workers`` as many as there is room for, and
                without ``gpus`` one for each on a GPU and none otherwise.
            device: ``cpu`` or ``cuda``.

        Raises:
            Unusable: If Ray is not installed, or not to be reached.
            BadValue: If there is room for no worker, or an option is wrong.
        """
        chosen = complete(call, _options, "workers").arguments
        address, workers, cpus, gpus = chosen["address"], chosen["workers"], chosen["cpus"], chosen["gpus"]
        assert isinstance(address, str)
        assert isinstance(workers, int)
        assert isinstance(cpus, int)
        assert isinstance(gpus, int | float)
        if gpus < 0:
            gpus = 0.0 if device == "cpu" else 1.0
        if cpus < 1 or workers < 0:
            raise BadValue(f"--workers {call}: expected at least 1 for cpus and 0 for workers")
        if not address and "ray" not in sys.modules:  # read when Ray is imported
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            if os.environ["RAY_AUTH_MODE"] == "token" and "RAY_AUTH_TOKEN_PATH" not in os.environ:
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            import ray
        except ImportError:
            raise Unusable("--workers ray needs Ray: pip install 'robustkpca[ray]'") from None
        joined = ray.is_initialized()
        if not joined:
            _require_answer(address, call)
            try:
                ray.init(
                    address or "local", log_to_driver=False, logging_level="warning", **({} if address else _alone())
                )
            except Exception as error:  # Ray raises many kinds, none of which is worth a traceback
                reason = " ".join(str(error).split())[:300]
                raise Unusable(f"--workers {call}: Ray cannot be joined ({type(error).__name__}: {reason})") from error
        there = ray.cluster_resources()
        room = int(there.get("CPU", 0) // cpus)
        if gpus:
            room = min(room, int(there.get("GPU", 0) // gpus))
        if not room:
            raise BadValue(
                f"--workers {call}: Ray has {there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs; expected at least "
                f"{cpus} and {gpus:g} for one worker"
            )
        crew = cls(min(workers, room) if workers else room, device, cpus, float(gpus), leave=not joined)
        crew._held.enter_context(redirect_stdout(sys.stderr))  # Ray tells of lost workers there, where the table goes
        return crew

    def hire(self) -> Any:
        """Ask Ray for an actor; its first sign comes once Ray has found a place."""
        import ray

        kind = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_restarts=0)(Actor)
        actor = kind.remote(self.device)
        handle = actor.begin.remote(os.getcwd(), self.cpus)
        self._actors[handle] = actor
        return handle

    def send(self, handle: Any, job: Job) -> Any:
        """Give a job to an actor."""
        actor = self._actors.pop(handle)
        following = actor.do.remote(job)
        self._actors[following] = actor
        return following

    def wait(self, handles: Sequence[Any], seconds: float) -> list[Any]:
        """Return those that have an answer, or are gone."""
        import ray

        done, _ = ray.wait(list(handles), num_returns=1, timeout=seconds)
        return list(done)

    def answer(self, handle: Any) -> list[Records] | None:
        """Return what an actor said; see `robustkpca.workers.Crew`."""
        import ray

        try:
            records: list[Records] | None = ray.get(handle)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            self._actors.pop(handle, None)
            raise WorkerLost(type(error).__name__) from error
        return records

    def close(self) -> None:
        """End every actor, and leave Ray."""
        import ray

        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()
        if self.leave:
            ray.shutdown()
        self._held.close()


def _require_answer(address: str, call: Call) -> None:
    """See that somebody listens there: Ray itself ends the whole process where nobody does."""
    host, colon, port = address.rpartition(":")
    if not address or "://" in address or address in ("auto", "local"):
        return
    if not (host and colon and port.isdigit() and int(port) < 65536):
        raise BadValue(f"--workers {call}: address {address!r}; expected HOST:PORT, such as 10.0.0.7:6379")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise Unusable(
            f"--workers {call}: Ray cannot be joined, nobody answers at {address} ({error}); start it with 'ray start --head'"
        ) from error


def _alone() -> dict[str, Any]:
    """Return the settings of a Ray that this process starts for itself: no dashboard, and no door to other machines.

    Whoever reaches a port of Ray can run code. Ray replaces 127.0.0.1 by the address of the machine, so another address of
    the loopback is taken where there is one.
    """
    return {"include_dashboard": False} | ({"_node_ip_address": "127.0.0.2"} if sys.platform == "linux" else {})
