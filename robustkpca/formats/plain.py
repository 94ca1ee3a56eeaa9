"""A table as csv and as json, with all that is known of every cell."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict

from robustkpca.boards import Table


def comma_separated(tables: Sequence[Table], costs: bool = False) -> str:
    """Write one line for every cell; numbers from 0 to 1 with all their digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "board",
            "data",
            "model",
            "model_name",
            "seed",
            "rank",
            "column",
            "protocol",
            "reduce",
            "value",
            "low",
            "high",
            "count",
            "expected",
            "invalid",
            "failed",
            "flags",
            "forwards",
            "backwards",
            *(["seconds"] if costs else []),
        ]
    )
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.board.columns, row.cells, strict=True):
                numbers = ["" if number is None else repr(number) for number in (cell.value, cell.low, cell.high)]
                spent = (cell.forwards, cell.backwards, cell.seconds)
                counts = [cell.count, cell.expected, cell.invalid, cell.failed]
                rank = "" if row.rank is None else row.rank
                writer.writerow(
                    [
                        table.board.name,
                        table.data,
                        row.model,
                        row.name,
                        row.seed,
                        rank,
                        column.title,
                        cell.protocol,
                        column.reduce,
                        *numbers,
                        *counts,
                        "; ".join(cell.flags),
                        *("" if cost is None else repr(cost) for cost in spent[: 2 + costs]),
                    ]
                )
    return out.getvalue()


def as_json(tables: Sequence[Table], costs: bool = False) -> str:
    """Write the tables with every field of theirs."""
    values = [asdict(table) for table in tables]
    for cell in [] if costs else [cell for value in values for row in value["rows"] for cell in row["cells"]]:
        del cell["seconds"]
    return json.dumps(values, indent=2, default=str) + "\n"
