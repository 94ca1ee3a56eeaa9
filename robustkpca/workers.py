"""Shards dealt out to workers: one at a time to whoever is free, and again where a worker was lost."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from robustkpca.errors import Unusable
from robustkpca.jobs import Job, Records

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""So often may a shard end its worker before the run gives up."""
PATIENCE = 60.0
"""After so many seconds without a sign from any worker the run says that it waits."""


class WorkerLost(Exception):
    """A worker that ended before it answered: killed, out of memory, or on a machine that is gone."""


class Crew(Protocol):
    """Workers of one kind. A handle stands for an answer that is awaited."""

    size: int
    """Most workers that are worth having at once."""

    def hire(self) -> Any:
        """Start a worker and return the handle of its first sign."""
        ...

    def send(self, handle: Any, job: Job) -> Any:
        """Give a job to the worker that answered last by this handle, and return the handle of its next answer."""
        ...

    def wait(self, handles: Sequence[Any], seconds: float) -> list[Any]:
        """Return the handles that have an answer, none where the time is up."""
        ...

    def answer(self, handle: Any) -> list[Records] | None:
        """Return what the worker said: records, or ``None`` where it has just started.

        Raises:
            WorkerLost: If it is gone.
            Exception: What the job raised.
        """
        ...

    def close(self) -> None:
        """End every worker at once."""
        ...


@dataclass
class _Ordered:
    """A job with the number of times it was given out."""

    job: Job
    attempts: int = 0


def deal(jobs: Sequence[Job], crew: Crew) -> Generator[tuple[Job, list[Records]], None, None]:
    """Yield every job with its records as it is finished. The crew is closed in the end, whatever ends it.

    Args:
        jobs: In the order in which they are given out.
        crew: Who does them.

    Raises:
        UserError: What a job raised; or if a job ended its worker `ATTEMPTS` times, or workers end before they answer.
    """
    waiting = deque(_Ordered(job) for job in jobs)
    order: _Ordered | None
    given: dict[Any, _Ordered | None] = {}  # handles whose answer is awaited
    idle: list[Any] = []
    silent_ends = 0
    try:
        while waiting or any(given.values()):
            while waiting and idle:
                following = waiting.popleft()
                following.attempts += 1
                given[crew.send(idle.pop(), following.job)] = following
            starting = sum(order is None for order in given.values())
            for _ in range(min(len(waiting) - starting, crew.size - len(given) - len(idle))):
                given[crew.hire()] = None
            answered = crew.wait(list(given), PATIENCE)
            if not answered:
                log.info("%d shards are under way, %d wait", len(given) - starting, len(waiting))
            for handle in answered:
                order = given.pop(handle)
                try:
                    records = crew.answer(handle)
                except WorkerLost as loss:
                    silent_ends = 0 if order else silent_ends + 1
                    if silent_ends >= ATTEMPTS:
                        raise Unusable(
                            f"{silent_ends} workers in a row ended before their first sign ({loss})"
                        ) from loss
                    if order:
                        _again(order, waiting, loss)
                    continue
                silent_ends = 0
                idle.append(handle)
                if order:
                    yield order.job, records or []
    finally:
        crew.close()


def _again(order: _Ordered, waiting: deque[_Ordered], loss: WorkerLost) -> None:
    job = order.job
    if order.attempts >= ATTEMPTS:
        raise Unusable(
            f"a shard of {job.cell.model} under {job.cell.threat} ended its worker {order.attempts} times ({loss}); everything "
            "else that was finished is kept. Has the machine enough memory? A smaller --batch-size needs less"
        ) from loss
    log.warning("a worker was lost (%s); its shard of %d samples is given out again", loss, len(job.positions))
    waiting.appendleft(order)
