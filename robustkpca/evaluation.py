"""What Python and the command line call to run a matrix of models and threats, and to score it."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import OutOfMemoryError

from robustkpca import registry
from robustkpca.attacking import AttackResult, attack
from robustkpca.audit import guessed, rehearse_threats
from robustkpca.benchmarks import find_benchmark
from robustkpca.board_files import SUFFIX, open_board
from robustkpca.boards import Board, board_of, spelled
from robustkpca.contestants import Contestant, contestants, damaged_samples, reloaded
from robustkpca.crews import crew_of
from robustkpca.data.dataset import Dataset
from robustkpca.data.selection import selection
from robustkpca.data.subsets import SUBSETS
from robustkpca.errors import BadValue, Unusable, unknown
from robustkpca.jobs import Job, code_fingerprint
from robustkpca.matrix import Matrix, ModelChoice
from robustkpca.progress import Reporter
from robustkpca.runner import Shard, plan, run
from robustkpca.store import ResultStore
from robustkpca.tasks.task import Task, find_task
from robustkpca.threats import WORST_OF, Protocol, ThreatModel, official, spread
from robustkpca.workers import deal

if TYPE_CHECKING:  # annotations only
    import pandas

__all__ = ["AttackResult", "Run", "attack", "run_matrix", "score"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A matrix with everything found and checked.

    Args:
        board: The columns that were asked for.
        threats: What they need.
        models: Ids, in the order asked for.
        data: The data set.
        seed: The seed of the run.
        store: Where the records are.
        samples: Ids of the samples that were asked for.
    """

    board: Board
    threats: tuple[ThreatModel, ...]
    models: tuple[str, ...]
    data: Dataset
    seed: int
    store: ResultStore
    samples: frozenset[str]

    def frame(self) -> pandas.DataFrame:
        """Return the records of this run alone, also where the folder holds others."""
        import pandas

        frame = self.store.frame()
        mine = frame["model"].isin(self.models) & (frame["data"] == self.data.spec.id) & (frame["seed"] == self.seed)
        wanted = {f"{one} {one.version}" for one in self.threats}
        mine &= (frame["threat"].astype(str) + " " + frame["threat_version"].astype(str)).isin(wanted)
        mine &= frame["sample"].isin(self.samples)
        planned = [str(len(self.samples))] * int(mine.sum())
        return frame[mine].assign(planned=pandas.Categorical(planned)).reset_index(drop=True)


def run_matrix(matrix: Matrix, folder: str | Path, reporter: Reporter | None = None) -> Run:
    """Run what is missing of a matrix, and keep the records in a folder.

    Everything that can be checked is checked for all models before the first attack.

    Args:
        matrix: What to run.
        folder: Results folder; what it holds already is not run again.
        reporter: Told about the progress.

    Raises:
        UserError: If anything cannot be used. What was finished before is kept.
    """
    reporter = reporter or Reporter()
    store = ResultStore(folder)
    benchmark = find_benchmark(matrix.benchmark)
    task = find_task(benchmark.task)
    board, threats = _threats(matrix, benchmark.board, task)
    rehearse_threats(threats)
    choices = matrix.models or tuple(ModelChoice(name=name) for name in benchmark.models)
    if not choices:
        raise BadValue(f"no model: benchmark {benchmark.name} has none of its own; name one, such as 'timm/resnet18'")
    source = matrix.data or benchmark.data
    if not source:
        raise BadValue(f"no data: benchmark {benchmark.name} needs a folder; give it with --data DIR")
    unnamed = bool(matrix.data) and not matrix.threats
    matrix = matrix.model_copy(
        update={"models": choices, "threats": matrix.threats or (benchmark.board,), "data": source}
    )
    data = task.open(source, matrix.classes or benchmark.classes)
    _refuse_attacks(data.spec.layout, threats)
    for notice in data.notices:
        log.warning("%s", notice)
    positions = selection(data.ids, matrix.limit)
    loaded = list(contestants(task, choices, matrix, data, positions))
    groups = {}
    for one in loaded:
        if one.spec.id in groups:
            raise BadValue(f"model {one.choice.name} is named twice with the same weights; name it once")
        groups[one.spec.id] = plan(
            store, one.spec.id, threats, data, positions, seed=matrix.seed, shard_size=matrix.shard_size
        )
    damaged = damaged_samples(data, {one.spec.preprocessing: groups[one.spec.id] for one in loaded})
    if unnamed:
        log.warning("no threats are named: taking those of the board %s, radii included", benchmark.board)
    missing = {model: _samples(shards) for model, shards in groups.items()}
    reporter.planned(sum(missing.values()))
    _keep_config(matrix, store.folder)
    crew = crew_of(matrix.workers, matrix.device) if any(groups.values()) else None
    if crew is None:
        for one in loaded:
            if groups[one.spec.id]:
                reporter.model(one.spec.label, one.reading, missing[one.spec.id])
                _run_here(task, one, matrix, data, groups[one.spec.id], store, len(positions), damaged, reporter)
    else:
        for one in loaded:
            if groups[one.spec.id]:
                reporter.model(one.spec.label, one.reading, missing[one.spec.id])
        jobs = [
            job
            for one in loaded
            for job in _jobs(task, one, matrix, data, groups[one.spec.id], len(positions), damaged)
        ]
        with closing(deal(jobs, crew)) as dealt:
            for job, records in dealt:
                for part in records:
                    store.write(part.cell, part.header, part.samples, part.columns)
                reporter.finished(ThreatModel.parse(job.cell.threat), len(job.positions))
    samples = frozenset(data.ids[position] for position in positions)
    done = Run(board, tuple(threats), tuple(groups), data, matrix.seed, store, samples)
    for remark in guessed(done.frame()):
        log.warning("%s", remark)
    return done


def _refuse_attacks(layout: str, threats: Sequence[ThreatModel]) -> None:
    """Refuse attacks where 800 of the 1000 logits are masked: their losses are not defined there."""
    attacks = [threat.label for threat in threats if any(part.budget is not None for part in threat.parts)]
    if layout in SUBSETS and attacks:
        raise BadValue(
            f"threat {attacks[0]!r} on {layout}: predictions there are among 200 classes, which attacks do not know; "
            "expected 'clean' or corruptions"
        )


def _run_here(
    task: Task,
    one: Contestant,
    matrix: Matrix,
    data: Dataset,
    groups: Sequence[Sequence[Shard]],
    store: ResultStore,
    planned: int,
    damaged: Mapping[int, str],
    reporter: Reporter,
) -> None:
    """Run the shards of one model in this process."""
    model = one.model or reloaded(task, one, matrix)
    try:
        run(
            task,
            model,
            data,
            groups,
            store,
            planned=planned,
            flags=one.flags,
            damaged=damaged,
            progress=reporter.finished,
        )
    except OutOfMemoryError as error:
        raise Unusable(
            f"model {one.choice.name}: {matrix.device} has too little memory for passes of {model.batch_size} {task.inputs}, "
            "the fewest there are; choose a smaller model or another --device, the same command then continues"
        ) from error


def _jobs(
    task: Task,
    one: Contestant,
    matrix: Matrix,
    data: Dataset,
    groups: Sequence[Sequence[Shard]],
    planned: int,
    damaged: Mapping[int, str],
) -> Iterator[Job]:
    """Yield the shards of one model as parcels for workers."""
    assert matrix.data is not None  # filled in
    for shard in (shard for shards in groups for shard in shards):
        yield Job(
            task.name,
            shard.cell,
            shard.positions,
            one.choice,
            matrix.batch_size,
            matrix.data,
            data.spec.classes,
            planned,
            one.flags,
            {position: damaged[position] for position in shard.positions if position in damaged},
            code_fingerprint(),
        )


def score(
    models: str | Sequence[str | dict[str, Any] | ModelChoice] = (),
    threats: str | Sequence[str] = (),
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    **options: Any,
) -> pandas.DataFrame:
    """Score models under threats, and return one record per (model, threat, sample).

    Args:
        models: Names, or mappings with the fields of `robustkpca.matrix.ModelChoice`; the benchmark's own where empty.
        threats: Texts of threats or names of boards; the benchmark's own where empty.
        data: Folder or file; the benchmark's own where ``None``.
        out: Results folder, where a second call continues; ``None`` keeps nothing.
        options: Further fields of `robustkpca.matrix.Matrix`, such as ``benchmark``, ``limit``, ``seed``, ``batch_size``.

    Raises:
        UserError: If anything cannot be used.
    """
    named = [models] if isinstance(models, str) else list(models)
    for one in named:
        if not isinstance(one, str | dict | ModelChoice):
            raise BadValue(
                f"score: got a {type(one).__name__} as a model; expected a name such as 'net.py:build', or a mapping with name "
                "and checkpoint. A network in memory is attacked with robustkpca.attack"
            )
    matrix = Matrix.of(
        "score",
        models=named,
        threats=[threats] if isinstance(threats, str) else list(threats),
        data=None if data is None else str(data),
        **options,
    )
    if out is not None:
        return run_matrix(matrix, out).frame()
    with tempfile.TemporaryDirectory() as folder:
        return run_matrix(matrix, folder).frame()


def _threats(matrix: Matrix, default: str, task: Task) -> tuple[Board, list[ThreatModel]]:
    """Return the columns that were asked for and everything they need, each threat once."""
    protocol = Protocol(matrix.protocol) if matrix.protocol else None
    texts = matrix.threats or (default,)
    _refuse_unknown(texts)
    ours = matrix.engine == "ours"
    if len(texts) == 1 and _is_board(texts[0]) and protocol is not Protocol.PUBLISHED and ours:
        board = spelled(open_board(texts[0]))
        return board, _fitting(task, [ThreatModel.parse(text) for text in board.threats])
    parts: list[str] = []
    for text in texts:
        parts += open_board(text).threats if _is_board(text) else spread(text)
    threats = list(dict.fromkeys(ThreatModel.parse(text, protocol=protocol) for text in parts))
    if not ours:
        threats = list(dict.fromkeys(map(official, threats)))
    board = board_of([threat.label for threat in threats], reduce=task.reduction)
    return board, _fitting(task, threats)


def _fitting(task: Task, threats: list[ThreatModel]) -> list[ThreatModel]:
    for one in threats:
        task.refuse(one)
    return threats


def _is_board(text: str) -> bool:
    return text in registry.entries("leaderboards") or text.endswith(SUFFIX)


def _refuse_unknown(texts: Sequence[str]) -> None:
    """Refuse what is neither a threat nor a board, and say so where it is a model that ``--threats`` has taken."""
    groups = map(registry.entries, ("attacks", "corruptions", "leaderboards"))
    known = {"clean", WORST_OF}.union(*groups)
    for text in map(str.strip, texts):
        name = re.split(r"[(@:]", text.removeprefix(f"{Protocol.PUBLISHED.value}/"), maxsplit=1)[0]
        if name in known or text.endswith(SUFFIX):
            continue
        if name in registry.entries("models") or name.startswith("timm/") or ".py:" in text:
            raise BadValue(f"--threats takes every word that follows, also the model {text!r}; write MODELs before it")
        raise unknown("threat", name, known)


def _samples(groups: Sequence[Sequence[Shard]]) -> int:
    return sum(len(shard.positions) for shards in groups for shard in shards)


def _keep_config(matrix: Matrix, folder: Path) -> None:
    try:
        matrix.write(folder)
    except OSError as error:
        raise Unusable(f"results folder {folder} cannot be written: {error}") from error
