"""What a results folder holds, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robustkpca.records import Verdict
from robustkpca.store import ResultStore
from robustkpca.versions import newest


def summary(folder: str | Path) -> list[dict[str, Any]]:
    """Return one row per (model, data set, seed, threat), sorted; of several versions of a threat the newest counts.

    Each row has the names, counts of verdicts, how many samples are missing of those asked for, the seconds spent, and the
    first reason why a sample has no verdict.

    Args:
        folder: A results folder.

    Raises:
        BadValue: If it holds no records.
    """
    store = ResultStore(folder)
    frame = store.frame()
    frame = frame[newest(frame)]
    seconds: dict[tuple[str, str, str, int], float] = {}
    planned: dict[tuple[str, str, int], int] = {}
    for header in store.headers():
        key = (header["model"]["id"], header["threat"], header["data"]["id"], header["seed"])
        seconds[key] = seconds.get(key, 0.0) + header["seconds"]
        run = (key[0], key[2], key[3])
        planned[run] = max(planned.get(run, 0), header["planned"])
    rows = []
    for (model, threat, data, seed), part in frame.groupby(
        ["model", "threat", "data", "seed"], observed=True, sort=True
    ):
        key = (str(model), str(threat), str(data), int(str(seed)))
        verdicts = part["verdict"].astype(str)
        counts = {verdict.value: int((verdicts == verdict.value).sum()) for verdict in Verdict}
        details = [str(text) for text in part["detail"] if text] if "detail" in part else []
        rows.append(
            {
                "model": key[0],
                "threat": str(part["threat_label"].iloc[0]),
                "data": key[2],
                "seed": key[3],
                "missing": planned[(key[0], key[2], key[3])] - len(part) + counts[Verdict.FAILED.value],
                **counts,
                "seconds": round(seconds[key], 1),
                "why": details[0] if details else "",
            }
        )
    return rows
