"""Ours beside theirs: whether two implementations of an attack say the same of every sample."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustkpca.boards import ALPHA
from robustkpca.errors import BadValue
from robustkpca.evaluation import run_matrix
from robustkpca.matrix import Matrix
from robustkpca.progress import Reporter
from robustkpca.records import Verdict
from robustkpca.statistics import mcnemar
from robustkpca.threats import OFFICIAL, ThreatModel, official

if TYPE_CHECKING:  # annotations only
    import pandas

THREATS = tuple(f"{name}@linf:8/255" for name in ("apgd_ce", "apgd_t", "fab_t", "square(reach_edges=false)"))
"""Compared where no threats are named."""
SAMPLES = 16
"""How many, where no limit is given."""
SHOWN = 10
"""Most ids in one line."""


@dataclass(frozen=True)
class Agreement:
    """What became of the same samples under two implementations of one attack.

    Args:
        model: Name of the model.
        ours: Short text of our threat.
        theirs: Short text of its counterpart.
        samples: How many both were asked to judge.
        both_break: How many both break.
        both_spare: How many neither breaks, among them those that were misclassified before.
        only_ours: Ids of the samples that ours alone breaks.
        only_theirs: Ids of the samples that theirs alone breaks.
        unjudged: Ids of the samples of which one of them has no verdict.
        p: Of the exact McNemar test that both break equally many.
    """

    model: str
    ours: str
    theirs: str
    samples: int
    both_break: int
    both_spare: int
    only_ours: tuple[str, ...]
    only_theirs: tuple[str, ...]
    unjudged: tuple[str, ...]
    p: float

    @property
    def agrees(self) -> bool:
        """Whether all were judged and the differences are no more than chance gives (p >= 0.05)."""
        return not self.unjudged and self.p >= ALPHA

    @property
    def share(self) -> float:
        """Share of the samples with one and the same verdict, from 0 to 1."""
        return (self.both_break + self.both_spare) / self.samples

    @property
    def remark(self) -> str:
        """Which samples differ, in one line; empty where none do."""
        parts = [
            f"{title} {', '.join(ids[:SHOWN])}{f' and {len(ids) - SHOWN} more' if len(ids) > SHOWN else ''}"
            for title, ids in (
                ("only ours breaks", self.only_ours),
                (f"only {OFFICIAL} breaks", self.only_theirs),
                ("no verdict for", self.unjudged),
            )
            if ids
        ]
        return f"{self.model}, {self.ours}: {'; '.join(parts)}" if parts else ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self) | {"share": self.share, "agrees": self.agrees}

    def to_row(self) -> dict[str, Any]:
        """Return the numbers of a table, by title."""
        return {
            "model": self.model,
            "threat": self.ours,
            "samples": self.samples,
            "same verdict": f"{100 * self.share:.1f} %",
            "both break": self.both_break,
            "only ours": len(self.only_ours),
            "only theirs": len(self.only_theirs),
            "no verdict": len(self.unjudged),
            "p": f"{self.p:.3f}",
            "agree": "yes" if self.agrees else "no",
        }


def verify(matrix: Matrix, folder: str | Path, reporter: Reporter | None = None) -> list[Agreement]:
    """Run every threat by our code and by the authors' package on the same samples, and compare the verdicts.

    Both draw at random, each in its own way, so a few samples at the edge of what an attack can reach may differ. Records
    are kept; a second call computes nothing.

    Args:
        matrix: Models, data and threats; `THREATS` and `SAMPLES` where it does not say.
        folder: Results folder.
        reporter: Told about the progress.

    Returns:
        One agreement for each model and threat, in the order asked for.

    Raises:
        UserError: If anything cannot be used, or a threat has no counterpart.
    """
    ours = [ThreatModel.parse(text) for text in matrix.threats or THREATS]
    pairs = [(one, official(one)) for one in dict.fromkeys(ours)]
    for one, other in pairs:
        if one == other:
            raise BadValue(f"threat '{one.label}': expected one of our attacks, such as 'apgd_ce@linf:8/255'")
    both = tuple(one.label for pair in pairs for one in pair)
    asked = matrix.model_copy(update={"threats": both, "engine": "ours", "limit": matrix.limit or SAMPLES})
    run = run_matrix(asked, folder, reporter)
    frame = run.frame()
    return [
        compared(frame[frame["model"] == model], one.label, other.label) for model in run.models for one, other in pairs
    ]


def compared(frame: pandas.DataFrame, ours: str, theirs: str) -> Agreement:
    """Compare two threats.

    Args:
        frame: Records of one model on one data set with one seed.
        ours: Short text of a threat.
        theirs: Short text of the other one.
    """
    sides = [
        dict(zip(part["sample"].astype(str), part["verdict"].astype(str), strict=True))
        for part in (frame[frame["threat_label"] == ours], frame[frame["threat_label"] == theirs])
    ]
    unclear = {Verdict.INVALID.value, Verdict.FAILED.value, ""}
    samples = sorted(sides[0].keys() | sides[1].keys())
    found = {sample: tuple(side.get(sample, "") for side in sides) for sample in samples}
    unjudged = tuple(sample for sample, verdicts in found.items() if unclear & set(verdicts))
    broken = {
        sample: tuple(verdict == Verdict.BROKEN.value for verdict in verdicts)
        for sample, verdicts in found.items()
        if sample not in unjudged
    }
    only_ours, only_theirs = (
        tuple(sample for sample, verdicts in broken.items() if verdicts == side)
        for side in ((True, False), (False, True))
    )
    return Agreement(
        str(frame["model_name"].iloc[0]),
        ours,
        theirs,
        len(samples),
        sum(verdicts == (True, True) for verdicts in broken.values()),
        sum(verdicts == (False, False) for verdicts in broken.values()),
        only_ours,
        only_theirs,
        unjudged,
        mcnemar(len(only_ours), len(only_theirs)),
    )
