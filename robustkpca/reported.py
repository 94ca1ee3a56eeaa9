"""Numbers that others report, beside ours: compared only where model, threat, protocol and data are the same."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any

from robustkpca.boards import Cell, Column, Row, Table
from robustkpca.errors import plain, unknown

SAMPLES = 50_000
"""Photos of the whole ImageNet validation set."""
_NAME = re.compile(r"(?P<name>\w+?)_(?P<size>tiny|small|base|digits)(?:\((?P<options>.*)\))?$")
_MODELS: dict[str, tuple[str, str, dict[str, str]]] = {
    "SymViT-tiny (baseline)": ("symvit", "tiny", {}),
    "SymViT-base (baseline)": ("symvit", "base", {}),
    "RPC-SymViT-tiny (4iter/layer1)": ("rpc_symvit", "tiny", {"iterations": "4", "layers": "0"}),
    "RPC-SymViT-tiny (5iter/layer1)": ("rpc_symvit", "tiny", {"iterations": "5", "layers": "0"}),
    "RPC-SymViT-tiny (6iter/layer1)": ("rpc_symvit", "tiny", {"iterations": "6", "layers": "0"}),
    "RPC-SymViT-tiny (2iter/all-layer)": ("rpc_symvit", "tiny", {"iterations": "2", "layers": "all"}),
    "RPC-SymViT-tiny (4iter/all-layer)": ("rpc_symvit", "tiny", {"iterations": "4", "layers": "all"}),
    "RPC-SymViT-base (2iter/all-layer)": ("rpc_symvit", "base", {"iterations": "2", "layers": "all"}),
    "DeiT-tiny": ("softmax_vit", "tiny", {}),
    "DeiT-small": ("softmax_vit", "small", {}),
    "DeiT-base": ("softmax_vit", "base", {}),
}
"""Reported models that this project builds: family, size, and the options that tell them apart."""
_DEFAULTS = {"iterations": "4", "layers": "0"}
"""What the models of the RPC family take where these options are not given."""
_CLEAN, _CORRUPTED = "ImageNet-1K val", "ImageNet-C"
_ATTACKED = re.compile(r"ImageNet-1K val, (?P<attack>PGD|FGSM) highest perturbation$")


@dataclass(frozen=True)
class Reported:
    """One cell of ours beside one number of others.

    Args:
        data: Id of our data set.
        model: Our row.
        column: Our column.
        ours: In the units of the metric, such as percent; ``None`` where we have no number.
        low: Lower end of our 95 % interval.
        high: Upper end.
        reported_model: As its source calls it.
        benchmark: What was measured, as its source calls it.
        metric: With its unit.
        reported: The number.
        source: Who reports it.
        difference: Ours minus the reported number, in points; ``None`` where they are not comparable.
        inside: Whether the reported number lies in our interval; ``None`` where they are not comparable.
        reason: Why they are not comparable, empty where they are.
    """

    data: str
    model: str
    column: str
    ours: float | None
    low: float | None
    high: float | None
    reported_model: str
    benchmark: str
    metric: str
    reported: float
    source: str
    difference: float | None = None
    inside: bool | None = None
    reason: str = ""


@lru_cache(maxsize=1)
def records() -> tuple[dict[str, Any], ...]:
    """Return every reported number with its source, those for orientation too."""
    text = resources.files("robustkpca.leaderboards").joinpath("reported.json").read_text(encoding="utf-8")
    return tuple(json.loads(text)["records"])


def beside(tables: Sequence[Table]) -> list[Reported]:
    """Set reported numbers beside the cells that measure the same kind of thing on a model of the same family.

    Args:
        tables: From `robustkpca.boards.leaderboard`.
    """
    found = []
    for table in tables:
        for row in table.rows:
            ours = _NAME.match(row.name.partition(" #")[0])
            for column, cell in zip(table.board.columns, row.cells, strict=True):
                for record in records() if ours else ():
                    if _related(record, ours["name"] if ours else "", column):
                        found.append(_compared(table, row, column, cell, record))
    return found


def _related(record: dict[str, Any], family: str, column: Column) -> bool:
    """Tell whether a record is of a family and of what a column measures, whatever the radius and the protocol."""
    if record["orientation"] or record.get("duplicate") or record["model"] not in _MODELS:
        return False
    if _MODELS[record["model"]][0] != family:
        return False
    benchmark, metric = record["benchmark"], record["metric"]
    if metric == "mCE":
        return column.reduce == "mce"
    if metric != ("top-5 accuracy (%)" if column.reduce == "top5" else "top-1 accuracy (%)"):
        return False
    if column.reduce not in ("worst", "mean", "top5"):
        return False
    if benchmark == _CORRUPTED:
        return len(column.threats) == 75
    if len(column.threats) != 1:
        return False
    attacked = _ATTACKED.match(benchmark)
    attack = re.split(r"[(@:]", column.threats[0].removeprefix("published/"))[0]
    return attack == attacked["attack"].lower() if attacked else benchmark == _CLEAN and column.threats == ("clean",)


def _compared(table: Table, row: Row, column: Column, cell: Cell, record: dict[str, Any]) -> Reported:
    ours, low, high = (None if number is None else 100 * number for number in (cell.value, cell.low, cell.high))
    pair = Reported(
        table.data,
        row.name,
        column.title,
        ours,
        low,
        high,
        record["model"],
        record["benchmark"],
        record["metric"],
        record["value"],
        record["source"],
    )
    reasons = _reasons(table, row, column, cell, record)
    if reasons or ours is None or low is None or high is None:
        return replace(pair, reason="; ".join(reasons) or "we have no number")
    value = float(record["value"])
    return replace(pair, difference=ours - value, inside=low <= value <= high)


def _reasons(table: Table, row: Row, column: Column, cell: Cell, record: dict[str, Any]) -> list[str]:
    """Return why a cell and a record are not comparable; empty where they are."""
    reasons = []
    _, size, options = _MODELS[record["model"]]
    ours = _NAME.match(row.name.partition(" #")[0])
    if ours is None or ours["size"] != size:
        reasons.append(f"model size {ours['size'] if ours else 'unknown'}, reported {size}")
    defaults = _DEFAULTS if ours and ours["name"] == "rpc_symvit" else {}
    given = defaults | (_options(ours["options"] or "") if ours else {})
    if given != options:
        reasons.append(f"model options {_spelled(given)}, reported {_spelled(options)}")
    if not row.checkpoint:
        reasons.append("weights: ours have no checkpoint")
    if not re.fullmatch(r"imagenet([/_-]?val)?", table.data_name.lower()):
        reasons.append(f"data set {table.data_name}, reported {record['benchmark'].partition(',')[0]}")
    if cell.expected != SAMPLES:
        reasons.append(f"sample count {cell.expected}, reported {SAMPLES}")
    if record["benchmark"] == _CORRUPTED:
        reasons.append("data set: ours is corrupted on the fly, reported is the stored ImageNet-C")
    if _ATTACKED.match(record["benchmark"]):
        if column.protocol != "published":
            reasons.append("protocol pixel, reported published")
        radius = column.threats[0].partition("@")[2]
        if radius != record.get("budget"):
            reasons.append(f"radius {radius}, reported {record.get('budget', 'none')}")
        if "(" in column.threats[0]:
            reasons.append("options of the attack are not the published ones")
    if record.get("bound"):
        reasons.append("reported as a bound")
    if cell.value is None:
        reasons.append("we have no number")
    elif cell.flags or row.flags:
        reasons.append("ours is flagged")
    return reasons


def _options(text: str) -> dict[str, str]:
    """Split ``a=1,b=2`` at the commas outside brackets."""
    parts = [part for part in re.split(r",(?![^\[]*\])", text) if part]
    return {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in parts)}


def _spelled(options: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(options.items())) or "none"


def summary(pairs: Sequence[Reported]) -> str:
    """Return how many numbers were compared, and how many of them disagree."""
    compared = [pair for pair in pairs if pair.inside is not None]
    outside, other = sum(pair.inside is False for pair in compared), len(pairs) - len(compared)
    return f"{len(compared)} reported numbers compared, {outside} outside our interval, {other} not comparable"


def render_reported(pairs: Sequence[Reported], form: str) -> str:
    """Write pairs as ``markdown``, ``csv`` or ``json``.

    Raises:
        UnknownName: If it is another format.
    """
    if form == "json":
        return json.dumps([asdict(pair) for pair in pairs], indent=2) + "\n"
    if form == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, list(Reported.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(pair) for pair in pairs)
        return out.getvalue()
    if form != "markdown":
        raise unknown("format of reported numbers", form, ("markdown", "csv", "json"))
    lines = ["| model | column | ours | reported | difference | in our interval | of | source |"]
    lines.append("|---|---|---:|---:|---:|---|---|---|")
    for pair in pairs:
        ours = "" if pair.ours is None else f"{pair.ours:.2f} [{pair.low:.2f}, {pair.high:.2f}]"
        difference = "" if pair.difference is None else f"{pair.difference:+.2f}"
        verdict = f"not comparable: {pair.reason}" if pair.inside is None else ("yes" if pair.inside else "no")
        reported_of = f"{pair.reported_model}, {pair.benchmark}, {pair.metric}"
        texts = (pair.model, pair.column, ours, str(pair.reported), difference, verdict, reported_of, pair.source)
        lines.append("| " + " | ".join(plain(text).replace("|", "\\|") for text in texts) + " |")
    return "\n".join([*lines, "", summary(pairs) + ".", ""])
