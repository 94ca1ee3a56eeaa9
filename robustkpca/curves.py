"""Which columns of a table form a curve: one attack at growing radii, one corruption at growing severities."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from robustkpca.boards import Cell, Table

_ATTACK = re.compile(r"(?P<call>.+)@(?P<norm>linf|l2|l1):(?P<at>[\d./]+)")
_CORRUPTION = re.compile(r"(?P<call>[^@:]+):(?P<at>[1-5])")


@dataclass(frozen=True)
class Curve:
    """The cells of some columns in growing order.

    Args:
        title: What is done.
        axis: What grows.
        at: Where each cell lies on that axis; the first is 0 where the board has a clean column.
        ticks: The texts of these places.
        lines: For every row of the table its cells.
    """

    title: str
    axis: str
    at: tuple[float, ...]
    ticks: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]


def curves(table: Table) -> list[Curve]:
    """Return the curves of a table, in the order of their first columns; each has two places besides clean or more."""
    found: dict[tuple[str, str], list[tuple[Fraction, str, int]]] = {}
    clean = None
    for index, column in enumerate(table.board.columns):
        if column.threats == ("clean",):
            clean = index
        if len(column.threats) != 1:
            continue
        for form, axis in ((_ATTACK, "radius"), (_CORRUPTION, "severity")):
            match = form.fullmatch(column.threats[0])
            if match:
                norm = match.groupdict().get("norm", "")
                named = f"{axis} in {NORMS[norm]}" if norm else axis
                found.setdefault((match["call"], named), []).append((Fraction(match["at"]), match["at"], index))
                break
    made = []
    for (call, axis), places in found.items():
        if len(places) < 2:
            continue
        places.sort()
        if clean is not None:
            places.insert(0, (Fraction(0), "0", clean))
        made.append(
            Curve(
                call,
                axis,
                tuple(float(at) for at, _, _ in places),
                tuple(text for _, text, _ in places),
                tuple(tuple(row.cells[index] for _, _, index in places) for row in table.rows),
            )
        )
    return made


NORMS = {"linf": "L-infinity", "l2": "L2", "l1": "L1"}
