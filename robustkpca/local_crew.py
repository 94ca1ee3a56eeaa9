"""Workers that are processes of this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from robustkpca.jobs import Desk, Job, Records
from robustkpca.workers import WorkerLost

_GRACE = 5.0
"""Seconds that a process has to end before it is killed."""


class LocalCrew:
    """Processes that each hold one model at a time.

    Args:
        size: How many.
        devices: Dealt out in turn; where it is ``cpu``, the cores are shared equally.
    """

    def __init__(self, size: int, devices: Sequence[str]) -> None:
        self.size = size
        self.devices = devices
        self._workers: dict[Connection, tuple[SpawnProcess, str]] = {}

    def hire(self) -> Connection:
        """Start a process on the device that has the fewest."""
        busy = [device for _, device in self._workers.values()]
        device = min(self.devices, key=busy.count)
        ours, theirs = get_context("spawn").Pipe()
        threads = max(1, len(os.sched_getaffinity(0)) // self.size)
        process = get_context("spawn").Process(target=_serve, args=(theirs, device, threads), daemon=True)
        process.start()
        theirs.close()
        self._workers[ours] = (process, device)
        return ours

    def send(self, handle: Connection, job: Job) -> Connection:
        """Give a job to a process."""
        with suppress(OSError):  # it is gone; the next answer says so
            handle.send(job)
        return handle

    def wait(self, handles: Sequence[Connection], seconds: float) -> list[Any]:
        """Return those that have something to say, or are gone."""
        return connection.wait(handles, seconds)

    def answer(self, handle: Connection) -> list[Records] | None:
        """Return what a process said; see `robustkpca.workers.Crew`."""
        try:
            kind, said = handle.recv()
        except (EOFError, OSError):
            process, _ = self._workers.pop(handle)
            process.join(_GRACE)
            handle.close()
            raise WorkerLost(f"exit code {process.exitcode}") from None
        if kind == "error":
            raise said
        records: list[Records] | None = said
        return records

    def close(self) -> None:
        """End every process."""
        for process, _ in self._workers.values():
            process.terminate()
        for handle, (process, _) in self._workers.items():
            process.join(_GRACE)
            if process.is_alive():
                process.kill()
                process.join()
            handle.close()
        self._workers.clear()


def _serve(pipe: Connection, device: str, threads: int) -> None:
    """Answer jobs until the driver closes the pipe or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver hears it, and ends its workers
    threading.Thread(target=_end_with_driver, daemon=True).start()
    if "cpu" in device:
        import torch

        torch.set_num_threads(threads)
    desk = Desk(device)
    pipe.send(("ready", None))
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            said: tuple[str, Any] = ("records", desk.do(job))
        except Exception as error:  # told to the driver, which raises it
            said = ("error", _sendable(error))
        try:
            pipe.send(said)
        except OSError:
            return


def _sendable(error: Exception) -> Exception:
    """Return the error itself where it survives the way to another process, and its text otherwise."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an error may hold anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _end_with_driver() -> None:
    """Wait for the driver's end, and end this process at once, whatever it is doing."""
    driver = parent_process()
    if driver is not None:
        connection.wait([driver.sentinel])
        os._exit(1)
