"""The texts of a table: what stands in its cells, above its columns and below it."""

from __future__ import annotations

from robustkpca.boards import Cell, Row, Table


def cell_text(cell: Cell) -> str:
    """Return percent with its interval, or a median distance with its quartiles, or why there is no number."""
    if cell.value is not None and cell.low is not None and cell.high is not None:
        mark = " !" if cell.flags else ""
        if cell.kind == "perplexity":
            return f"{cell.value:.2f} [{cell.low:.2f}, {cell.high:.2f}]{mark}"
        if cell.kind == "distance":
            return f"{cell.value:.4g} [{cell.low:.4g}, {cell.high:.4g}]{mark}"
        return f"{100 * cell.value:.1f} [{100 * cell.low:.1f}, {100 * cell.high:.1f}]{mark}"
    reasons = []
    if cell.count < cell.expected:
        reasons.append(f"{cell.expected - cell.count} of {cell.expected} missing")
    if cell.invalid:
        reasons.append(f"{cell.invalid} invalid")
    if cell.failed:
        reasons.append(f"{cell.failed} failed")
    return ", ".join(reasons) or "not run"


def cost_text(cell: Cell) -> str:
    """Return forward passes, backward passes and seconds per sample; empty where they were not counted."""
    if cell.forwards is None or cell.backwards is None or cell.seconds is None:
        return ""
    return f"{cell.forwards:.1f} + {cell.backwards:.1f}, {cell.seconds:.2g} s"


def rank_text(row: Row) -> str:
    """Return the rank, ``=`` where others share it, ``!`` where signs of a failed attack keep the row out of the ranking."""
    if row.rank is None:
        return "!" if row.flags else ""
    return f"{row.rank}{' =' if row.tied else ''}"


def header(table: Table, *, costs: bool = False) -> list[str]:
    """Return the titles above a table's columns; with ``costs`` each has a second one."""
    seeds = ["seed"] if several_seeds(table) else []
    titles = [[column.title, f"{column.title}: passes"][: 1 + costs] for column in table.board.columns]
    return ["rank", "model", *seeds, *(title for pair in titles for title in pair)]


def cells(table: Table, *, costs: bool = False) -> list[list[str]]:
    """Return the texts of a table, row by row, as markdown shows them; with ``costs`` each column has a second one."""
    lines = []
    for row in table.rows:
        seeds = [str(row.seed)] if several_seeds(table) else []
        pairs = [[cell_text(cell), cost_text(cell)][: 1 + costs] for cell in row.cells]
        lines.append([rank_text(row), row.name, *seeds, *(text for pair in pairs for text in pair)])
    return lines


def caption(table: Table, *, costs: bool = False) -> list[str]:
    """Return the lines that say how a table's numbers were obtained, with ``costs`` those of the passes too."""
    counts = sorted({cell.expected for row in table.rows for cell in row.cells})
    protocols = sorted({column.protocol for column in table.board.columns})
    seeds = sorted({row.seed for row in table.rows})
    measured = all(column.reduce == "perplexity" for column in table.board.columns)
    what = "Perplexity, lower is better, with 95 % bootstrap interval over samples"
    test = "a paired t-test over the losses of the samples" if measured else "an exact McNemar test"
    lines = [
        f"{what if measured else 'Accuracy in % with 95 % Wilson interval'}; {table.data_name} ({table.data}), "
        f"n = {', '.join(map(str, counts))}; protocol {', '.join(protocols)}; seed {', '.join(map(str, seeds))}.",
        f"= marks ranks shared because {test} (p >= 0.05) cannot tell the models apart.",
    ]
    means = [column.title for column in table.board.columns if column.reduce in ("mean", "top5", "mce")]
    if means:
        lines.append(
            f"{'Columns' if len(means) > 4 else ', '.join(means)} over several threats: mean, normal 95 % interval over "
            "samples (Wilson's where all are 0 or 1); ranked by a paired t-test."
        )
    if any(column.reduce == "mce" for column in table.board.columns):
        lines.append("mCE: errors in % of those of AlexNet (Hendrycks and Dietterich 2019), lower is better.")
    distances = [column.title for column in table.board.columns if column.reduce == "distance"]
    if distances:
        lines.append(
            f"{', '.join(distances)}: median size of the smallest harmful change with its quartiles, "
            "in the units of the protocol; misclassified samples count as 0; ranked by a sign test."
        )
    if costs:
        lines.append(
            "passes: forward + backward passes and seconds per sample; seconds belong to the machine and its load."
        )
    return lines + [f"! {note}" for note in table.notes]


def several_seeds(table: Table) -> bool:
    """Tell whether the rows need their seed."""
    return len({row.seed for row in table.rows}) > 1
