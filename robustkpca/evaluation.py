"""The Python entry points that run something: attack a batch, score a matrix."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import OutOfMemoryError, Tensor, nn

from robustkpca import registry
from robustkpca.audit import Misleading, check_model, guessed, rehearse, untrained
from robustkpca.benchmarks import find_benchmark
from robustkpca.board_files import SUFFIX, open_board
from robustkpca.boards import Board, board_of, spelled
from robustkpca.crews import crew_of, devices_of
from robustkpca.data import open_data
from robustkpca.data.dataset import Dataset
from robustkpca.data.digits import DIGITS
from robustkpca.data.inputs import checked_images, checked_labels
from robustkpca.data.selection import selection
from robustkpca.errors import BadValue, Unusable, UserError, unknown
from robustkpca.few_classes import few_classes
from robustkpca.indicators import Flag
from robustkpca.jobs import Job, code_fingerprint
from robustkpca.masking import KINDS, useless
from robustkpca.matrix import Matrix, ModelChoice
from robustkpca.models.classifier import TorchClassifier
from robustkpca.models.loading import load_model, wrap
from robustkpca.preprocessing import Preprocessing
from robustkpca.progress import Reporter
from robustkpca.records import Verdict
from robustkpca.runner import Shard, plan, run
from robustkpca.specs import ModelSpec
from robustkpca.store import ResultStore
from robustkpca.tasks.classification import judge_threat
from robustkpca.threats import WORST_OF, Protocol, ThreatModel, official, spread
from robustkpca.workers import deal

if TYPE_CHECKING:  # annotations only
    import pandas

log = logging.getLogger(__name__)

_HELD_BYTES = 2 << 30
"""Checked models stay loaded until they have this size together; further ones are loaded again when their turn comes."""


_NAMED = 10
"""How many damaged images are named one by one; all of them stand in the records."""


@dataclass(frozen=True, repr=False)
class AttackResult:
    """What became of a batch; one entry per image, in the order given.

    Args:
        verdicts: See `Verdict`.
        images: ``(N, C, H, W)``, the image that decided; normalised ones under the ``published`` protocol.
        predictions: ``(N,)``, int64, the class of the deciding image.
        clean_predictions: ``(N,)``, int64, the class of the image as given.
        distances: ``(N,)`` size of the change in the norm of the budget.
        forwards: ``(N,)``, int64, forward passes spent.
        backwards: ``(N,)``, int64, backward passes spent.
        details: Why a verdict is ``INVALID`` or ``FAILED``; empty otherwise.
        flags: Remarks about the model and its gradients.
    """

    verdicts: tuple[Verdict, ...]
    images: Tensor
    predictions: Tensor
    clean_predictions: Tensor
    distances: Tensor
    forwards: Tensor
    backwards: Tensor
    details: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @property
    def robust_accuracy(self) -> float:
        """``SURVIVED`` / all; NaN where a verdict is ``INVALID`` or ``FAILED``, see ``details``."""
        return float("nan") if self._blocked else self._count(Verdict.SURVIVED) / len(self.verdicts)

    @property
    def success_rate(self) -> float:
        """``BROKEN`` / (``BROKEN`` + ``SURVIVED``), the share of the correctly classified.

        NaN where there are none, or where a verdict is ``INVALID`` or ``FAILED``.
        """
        broken, survived = self._count(Verdict.BROKEN), self._count(Verdict.SURVIVED)
        return float("nan") if self._blocked or not broken + survived else broken / (broken + survived)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self._count(verdict)} {verdict.value}" for verdict in Verdict if self._count(verdict))
        flags = f", flags: {'; '.join(self.flags)}" if self.flags else ""
        return f"AttackResult({counts}{flags})"

    @property
    def _blocked(self) -> bool:
        return any(verdict in (Verdict.INVALID, Verdict.FAILED) for verdict in self.verdicts)

    def _count(self, verdict: Verdict) -> int:
        return sum(one is verdict for one in self.verdicts)


def attack(
    model: nn.Module | Callable[[Tensor], Tensor] | TorchClassifier | str,
    images: Tensor,
    labels: Tensor,
    threat: ThreatModel | str,
    *,
    seed: int = 0,
    sample_ids: Sequence[str] | None = None,
    batch_size: int | str = "auto",
) -> AttackResult:
    """Attack a batch of images and judge every one.

    Args:
        model: Any module or function that maps [0, 1] images to logits, a name, or a loaded classifier. Its modes, buffers
            and gradients are the same afterwards.
        images: ``(N, C, H, W)`` or ``(N, D)``, float in [0, 1] or uint8. Not changed.
        labels: ``(N,)``, whole numbers, the true classes.
        threat: Such as ``pgd(steps=20)@linf:8/255``.
        seed: Key of the random streams.
        sample_ids: One text per image, the other part of the key; positions where ``None``.
        batch_size: Most images of one pass.

    Raises:
        UserError: If an input cannot be used; the message says how to mend it.
    """
    one = threat if isinstance(threat, ThreatModel) else ThreatModel.parse(threat)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise BadValue(f"seed {seed!r}: expected a whole number")
    images = checked_images(images, dimensions=(2, 4))
    _rehearse([one], (4,) if images.ndim == 2 else (1, 2, 2))
    labels = checked_labels(labels, len(images))
    if not len(images):
        raise BadValue("no images: got a batch of 0; expected at least one")
    ids = [str(index) for index in range(len(images))] if sample_ids is None else [str(sample) for sample in sample_ids]
    if len(ids) != len(images) or len(set(ids)) != len(ids):
        raise BadValue(
            f"sample_ids: got {len(ids)} ({len(set(ids))} different) for {len(images)} images; expected one each"
        )
    strange = next((sample for sample in ids if not sample.isprintable()), None)
    if strange is not None:
        raise BadValue(f"sample_ids: {strange!r} is not one line of UTF-8 text; rename the sample")
    if isinstance(model, str):
        model = load_model(model, batch_size=batch_size)
    classifier = model if isinstance(model, TorchClassifier) else wrap(model, batch_size=batch_size)
    flags = check_model(classifier, images)
    with classifier.evaluating():
        images, labels = images.to(classifier.device), labels.to(classifier.device)
        outputs = classifier.logits(images[:1]).shape[1]
        checked_labels(labels, len(images), outputs)
        result = judge_threat(classifier, images, labels, one, seed=seed, samples=ids)
    survived = [verdict is Verdict.SURVIVED for verdict in result.verdicts]
    shares = useless(survived, {kind: getattr(result.meter, kind).cpu().numpy() for kind in KINDS})
    flags += few_classes(one, outputs)
    flags += [str(Flag(kind, f"on {share} of the surviving samples")) for kind, share in shares.items()]
    return AttackResult(
        tuple(result.verdicts),
        result.images,
        result.logits.argmax(1),
        result.clean_logits.argmax(1),
        result.distances,
        result.meter.forwards,
        result.meter.backwards,
        tuple(result.details),
        tuple(flags),
    )


@dataclass(frozen=True)
class _Contestant:
    """A model that was loaded and checked; ``classifier`` is ``None`` where it has to be loaded again."""

    choice: ModelChoice
    spec: ModelSpec
    flags: tuple[str, ...]
    classifier: TorchClassifier | None


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
    board, threats = _threats(matrix, benchmark.board)
    _rehearse(threats)
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
    data = open_data(source, classes=matrix.classes or benchmark.classes)
    for notice in data.notices:
        log.warning("%s", notice)
    positions = selection(data.ids, matrix.limit)
    loaded = list(_loaded(choices, matrix, data, positions))
    groups = {}
    for one in loaded:
        if one.spec.id in groups:
            raise BadValue(f"model {one.choice.name} is named twice with the same weights; name it once")
        groups[one.spec.id] = plan(
            store, one.spec.id, threats, data, positions, seed=matrix.seed, shard_size=matrix.shard_size
        )
    damaged = _damaged(data, {one.spec.preprocessing: groups[one.spec.id] for one in loaded})
    if unnamed:
        log.warning("no threats are named: taking those of the board %s, radii included", benchmark.board)
    missing = {model: _samples(shards) for model, shards in groups.items()}
    reporter.planned(sum(missing.values()))
    _keep_config(matrix, store.folder)
    crew = crew_of(matrix.workers, matrix.device) if any(groups.values()) else None
    if crew is None:
        for one in loaded:
            if groups[one.spec.id]:
                reporter.model(one.spec, matrix.device, missing[one.spec.id])
                _run_here(one, matrix, data, groups[one.spec.id], store, len(positions), damaged, reporter)
    else:
        for one in loaded:
            if groups[one.spec.id]:
                reporter.model(one.spec, matrix.device, missing[one.spec.id])
        jobs = [job for one in loaded for job in _jobs(one, matrix, data, groups[one.spec.id], len(positions), damaged)]
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


def _threats(matrix: Matrix, default: str) -> tuple[Board, list[ThreatModel]]:
    """Return the columns that were asked for and everything they need, each threat once."""
    protocol = Protocol(matrix.protocol) if matrix.protocol else None
    texts = matrix.threats or (default,)
    _refuse_unknown(texts)
    ours = matrix.engine == "ours"
    if len(texts) == 1 and _is_board(texts[0]) and protocol is not Protocol.PUBLISHED and ours:
        board = spelled(open_board(texts[0]))
        return board, [ThreatModel.parse(text) for text in board.threats]
    parts: list[str] = []
    for text in texts:
        parts += open_board(text).threats if _is_board(text) else spread(text)
    threats = list(dict.fromkeys(ThreatModel.parse(text, protocol=protocol) for text in parts))
    if not ours:
        threats = list(dict.fromkeys(map(official, threats)))
    return board_of([threat.label for threat in threats]), threats


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


def _rehearse(threats: Sequence[ThreatModel], shape: tuple[int, ...] = (1, 2, 2)) -> None:
    for one in threats:
        for part in one.parts:
            if part.budget is not None:
                rehearse(part.function(), part.budget, part.call.arguments, shape, answering=not part.engine)


def _loaded(
    choices: Sequence[ModelChoice], matrix: Matrix, data: Dataset, positions: Sequence[int]
) -> Iterator[_Contestant]:
    """Load and check every model, and hold it while there is room."""
    held = 0
    for choice in choices:
        classifier = _load(choice, matrix)
        try:
            images = data.read(
                _first_sound(data, positions, classifier.spec.preprocessing), classifier.spec.preprocessing
            )
            flags = check_model(classifier, images, data.spec.classes) + untrained(classifier.spec)
        except UserError as error:
            if matrix.data is None or matrix.data in DIGITS:
                kind = Misleading if isinstance(error, Misleading) else Unusable
                raise kind(f"on the bundled digits, taken because --data names no others: {error}") from error
            raise
        for flag in flags:
            log.warning("%s: %s", choice.name, flag)
        log.info("%s: %s, weights %s", choice.name, classifier.spec.preprocessing, classifier.spec.weights[:12])
        held += sum(p.numel() * p.element_size() for p in classifier.network.parameters())
        yield _Contestant(choice, classifier.spec, tuple(flags), classifier if held <= _HELD_BYTES else None)


def _run_here(
    one: _Contestant,
    matrix: Matrix,
    data: Dataset,
    groups: Sequence[Sequence[Shard]],
    store: ResultStore,
    planned: int,
    damaged: Mapping[int, str],
    reporter: Reporter,
) -> None:
    """Run the shards of one model in this process."""
    classifier = one.classifier or _reloaded(one, matrix)
    try:
        run(
            classifier,
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
            f"model {one.choice.name}: {matrix.device} has too little memory for passes of {classifier.batch_size} images, "
            "the fewest there are; choose a smaller model or another --device, the same command then continues"
        ) from error


def _jobs(
    one: _Contestant,
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


def _load(choice: ModelChoice, matrix: Matrix) -> TorchClassifier:
    return load_model(
        choice.name,
        choice.checkpoint,
        devices_of(matrix.device)[0],
        use_ema=choice.use_ema,
        preprocessing=choice.preprocessing,
        dtype=choice.dtype,
        batch_size=matrix.batch_size,
    )


def _reloaded(one: _Contestant, matrix: Matrix) -> TorchClassifier:
    """Load a checked model again, and see that it is still the same."""
    classifier = _load(one.choice, matrix)
    if classifier.spec.id != one.spec.id:
        raise Unusable(
            f"model {one.choice.name}: its weights or its file were changed while the run was under way; "
            "the same command takes what is there now"
        )
    return classifier


def _first_sound(data: Dataset, positions: Sequence[int], preprocessing: Preprocessing) -> list[int]:
    """Return up to eight positions that can be read, to look at a model with."""
    sound: list[int] = []
    for start in range(0, len(positions), 8):
        part = list(positions[start : start + 8])
        damaged = data.check(part, preprocessing)
        sound += [position for position in part if position not in damaged]
        if len(sound) >= 8:
            break
    if not sound:
        raise BadValue(f"none of the {len(positions)} images can be read: {next(iter(damaged.values()))}")
    return sound[:8]


def _damaged(data: Dataset, groups: Mapping[Preprocessing, Sequence[Sequence[Shard]]]) -> dict[int, str]:
    """Find and name the damaged images among those that are still needed, before any of them is attacked."""
    damaged: dict[int, str] = {}
    for preprocessing, shards in groups.items():
        needed = {position for group in shards for shard in group for position in shard.positions}
        damaged |= data.check(sorted(needed), preprocessing)
    for position in sorted(damaged)[:_NAMED]:
        log.warning("%s; its records say failed", damaged[position])
    if len(damaged) > _NAMED:
        log.warning("%d further images cannot be read; 'robustkpca show' counts them", len(damaged) - _NAMED)
    return damaged


def _samples(groups: Sequence[Sequence[Shard]]) -> int:
    return sum(len(shard.positions) for shards in groups for shard in shards)


def _keep_config(matrix: Matrix, folder: Path) -> None:
    try:
        matrix.write(folder)
    except OSError as error:
        raise Unusable(f"results folder {folder} cannot be written: {error}") from error
