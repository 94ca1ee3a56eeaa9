"""A battery of cheap threats that makes a model show what it hides, and the signs that it leaves in the records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustkpca.audit import Misleading
from robustkpca.benchmarks import find_benchmark
from robustkpca.evaluation import run_matrix
from robustkpca.indicators import Flag, flags
from robustkpca.matrix import Matrix, ModelChoice
from robustkpca.progress import Reporter
from robustkpca.store import read

if TYPE_CHECKING:  # annotations only
    import pandas

THREATS = (
    "clean",
    "noise(samples=20)@linf:8/255",
    "fgsm@linf:8/255",
    "pgd@linf:8/255",
    "pgd@linf:16/255",
    "pgd@linf:1",
    "apgd_ce(steps=30)@linf:8/255",
    "apgd_dlr(steps=30)@linf:8/255",
    "apgd_dlr(steps=30)@linf:1",
    "square(queries=500)@linf:8/255",
)
"""One step and many, two losses, two black boxes, twice the radius and no radius at all."""
SAMPLES = 64
"""How many, where no limit is given."""


@dataclass(frozen=True)
class Examination:
    """What was found about one model on one data set with one seed.

    Args:
        model: Its name.
        data: Name of the data set, empty where the model could not be run.
        seed: Of the records.
        threats: How many threats it met.
        samples: How many samples they were tried on.
        flags: Signs that an attack failed.
    """

    model: str
    data: str
    seed: int
    threats: int
    samples: int
    flags: tuple[Flag, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        advised = [asdict(flag) | {"advice": flag.advice} for flag in self.flags]
        return asdict(self) | {"flags": advised}


def examine(matrix: Matrix, folder: str | Path, reporter: Reporter | None = None) -> list[Examination]:
    """Run a battery of threats on each model, and look for the signs of an attack that failed.

    A model whose output is of the wrong kind is flagged too, and the others go on. Records are kept.

    Args:
        matrix: Models, data and threats; `THREATS` and `SAMPLES` where it does not say.
        folder: Results folder.
        reporter: Told about the progress.

    Raises:
        UserError: If anything cannot be used.
    """
    names = find_benchmark(matrix.benchmark).models
    found = []
    for choice in matrix.models or tuple(ModelChoice(name=name) for name in names):
        asked = {"models": (choice,), "threats": matrix.threats or THREATS, "limit": matrix.limit or SAMPLES}
        try:
            run = run_matrix(matrix.model_copy(update=asked), folder, reporter)
        except Misleading as error:
            kind = "probabilities" if "probabilities" in str(error) else "not finite"
            evidence = f"model {str(error).partition('model ')[2].partition(';')[0]}"
            found.append(Examination(choice.name, "", matrix.seed, 0, 0, (Flag(kind, evidence),)))
            continue
        found += look_at(run.frame())
    return found


def examine_records(*folders: str | Path) -> list[Examination]:
    """Look for the signs of an attack that failed in what results folders hold already.

    Raises:
        BadValue: If a folder holds no records.
    """
    return look_at(read(*folders))


def look_at(frame: pandas.DataFrame) -> list[Examination]:
    """Look at every model, data set and seed of a frame, as `robustkpca.store.read` returns it."""
    return [
        Examination(
            str(part["model_name"].iloc[0]),
            str(part["data_name"].iloc[0]),
            int(part["seed"].iloc[0]),
            int(part["threat"].astype(str).nunique()),
            int(part["sample"].nunique()),
            tuple(flags(part)),
        )
        for _, part in frame.groupby(["model", "data", "seed"], observed=True, sort=True)
    ]
