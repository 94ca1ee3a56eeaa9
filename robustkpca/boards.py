"""Records become a table: a board declares its columns, a table is a view of the records and nothing else."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from robustkpca import indicators, registry
from robustkpca.budget import MINIMAL, radius_text
from robustkpca.calls import exact
from robustkpca.errors import BadValue
from robustkpca.records import Verdict
from robustkpca.reductions import LOWER_IS_BETTER, p_value, per_sample, refuse_reduction, with_interval
from robustkpca.versions import left_out, newest

if TYPE_CHECKING:  # annotations only: pandas is imported by whoever made the frame
    import pandas

ALPHA = 0.05
"""Two models are tied where the paired test does not reject at this level."""


@dataclass(frozen=True)
class Column:
    """One column of a board.

    Args:
        title: What stands above it.
        threats: Short texts of threats.
        reduce: How several threats become one number, see `robustkpca.reductions.REDUCTIONS`. By default a sample counts
            only if it survives all of them.
        within: For threats without a radius: the radius at which robust accuracy is wanted, in pixels from 0 to 1.
    """

    title: str
    threats: tuple[str, ...]
    reduce: str = "worst"
    within: Fraction | None = None

    @property
    def protocol(self) -> str:
        """``pixel`` or ``published``."""
        return "published" if self.threats[0].startswith("published/") else "pixel"

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value is the better one."""
        return self.reduce not in LOWER_IS_BETTER

    def __post_init__(self) -> None:
        refuse_reduction(self.title, self.threats, self.reduce, self.within)
        if len({threat.startswith("published/") for threat in self.threats}) != 1:
            raise BadValue(
                f"column {self.title!r} mixes the pixel and the published protocol: {', '.join(self.threats)}"
            )


@dataclass(frozen=True)
class Board:
    """What a leaderboard shows.

    Args:
        name: As in the registry.
        title: Headline.
        columns: From left to right.
        rank_by: Title of the column that orders the rows, empty for the last one.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rank_by: str = ""

    def __post_init__(self) -> None:
        titles = [column.title for column in self.columns]
        if self.rank_by and self.rank_by not in titles:
            raise BadValue(f"board {self.name}: it ranks by {self.rank_by!r}; expected one of {', '.join(titles)}")

    @property
    def threats(self) -> tuple[str, ...]:
        """Everything that has to be run for the board, each once."""
        return tuple(dict.fromkeys(threat for column in self.columns for threat in column.threats))


@dataclass(frozen=True)
class Cell:
    """One number of a table, or the reason why there is none.

    Args:
        value: Share of samples that survive, from 0 to 1, or another reduction; ``None`` where samples are missing or cannot
            be judged.
        low: Lower end of the 95 % interval, Wilson's for shares.
        high: Upper end.
        count: Samples judged under every threat of the column.
        expected: Samples that the run was asked for.
        protocol: How it was attacked and judged.
        invalid: Samples whose verdict is ``INVALID``.
        failed: Samples whose verdict is ``FAILED``.
        flags: Remarks that a reader must see.
        forwards: Forward passes per sample, over all threats of the column; ``None`` where they were not counted.
        backwards: Backward passes per sample.
        seconds: Wall time per sample.
        kind: ``share``, ``perplexity``, or ``distance`` where the value is a median distance between its quartiles.
    """

    value: float | None
    low: float | None
    high: float | None
    count: int
    expected: int
    protocol: str
    invalid: int = 0
    failed: int = 0
    flags: tuple[str, ...] = ()
    forwards: float | None = None
    backwards: float | None = None
    seconds: float | None = None
    kind: str = "share"


@dataclass(frozen=True)
class Row:
    """One model on one data set with one seed.

    Args:
        model: The model's id.
        name: Its name, with a part of the id where two rows would have the same.
        seed: The seed of its records.
        cells: One per column.
        rank: Best rank of its tie group; ``None`` where the ranking column has no value.
        tied: Whether others share the rank.
        checkpoint: sha256 of its checkpoint, empty where there is none.
        command: The command line that it came from, without threats; empty where the records do not say.
        flags: Signs that an attack failed; such a row is shown, but has no rank.
    """

    model: str
    name: str
    seed: int
    cells: tuple[Cell, ...]
    rank: int | None = None
    tied: bool = False
    checkpoint: str = ""
    command: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A board filled with the records of one data set.

    Args:
        board: What is shown.
        data: Id of the data set.
        data_name: Its name.
        rows: Ordered by rank, then name.
        notes: Remarks below the table.
    """

    board: Board
    data: str
    data_name: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())


def find_board(name: str) -> Board:
    """Return a registered board.

    Raises:
        UnknownName: If there is none of that name.
    """
    return registry.find("leaderboards", name).value(Board)


def spelled(board: Board, known: Container[str] = ()) -> Board:
    """Return a board with its threats in their short text, as the records have them.

    Args:
        board: Its author may have written out options that have their default value, or ``0.10`` for ``0.1``.
        known: Texts that are short already.
    """
    from robustkpca.threats import ThreatModel

    label = {text: text if text in known else ThreatModel.parse(text).label for text in board.threats}
    columns = tuple(replace(c, threats=tuple(map(label.__getitem__, c.threats))) for c in board.columns)
    return replace(board, columns=columns)


def board_of(
    threats: Sequence[str], name: str = "custom", radii: Sequence[Fraction] = (), reduce: str = "worst"
) -> Board:
    """Return a board with one column for each threat, and the worst of the attacks of a protocol where there are several.

    A threat without a radius has a column of distances, and one of robust accuracy for every radius that is asked for.

    Args:
        threats: Short texts.
        name: A name for it.
        radii: In pixels from 0 to 1.
        reduce: How the records of one threat become a number, see `robustkpca.reductions.REDUCTIONS`.
    """
    if reduce == "perplexity":
        return Board(name, "Perplexity", tuple(Column(threat, (threat,), reduce) for threat in dict.fromkeys(threats)))
    columns: list[Column] = []
    for threat in dict.fromkeys(threats):
        if not threat.endswith(f":{MINIMAL}"):
            columns.append(Column(threat, (threat,)))
            continue
        columns.append(Column(threat, (threat,), "distance"))
        bare = threat.removesuffix(MINIMAL)
        shown = () if threat.startswith("published/") else radii  # its distances are in other units
        columns += [Column(f"{bare}{radius_text(radius)} of {MINIMAL}", (threat,), within=radius) for radius in shown]
    for prefix in ("", "published/"):
        attacks = [t for t in dict.fromkeys(threats) if "@" in t and t.startswith("published/") == bool(prefix)]
        attacks = [t for t in attacks if not t.endswith(f":{MINIMAL}")]
        if len(attacks) > 1:
            columns.append(Column(f"{prefix}worst of {len(attacks)}", tuple(attacks)))
    if not columns:
        raise BadValue("a board needs at least one threat")
    return Board(name, "Robust accuracy", tuple(columns))


def leaderboard(
    frame: pandas.DataFrame, board: Board | str | None = None, *, radii: Sequence[str | Fraction] = ()
) -> list[Table]:
    """Fill a board, one table per data set.

    Args:
        frame: Records as `robustkpca.store.read` returns them.
        board: A board, its name, or ``None`` for one column per threat that occurs.
        radii: Without a board: where to show the robust accuracy that the distances of threats without a radius give.

    Of several versions of a threat the newest counts; a note tells how many other records are left out.

    Raises:
        BadValue: If two implementations of a threat would share a column.
    """
    if not hasattr(frame, "groupby"):
        raise BadValue(f"leaderboard: got {frame!r}; expected a frame of records, such as robustkpca.read('results')")
    if board is None:
        wanted = [radius_of(radius) for radius in radii]
        tasks = [part for _, part in frame.groupby("task", observed=True, sort=True)] if "task" in frame else [frame]
        return [table for part in tasks for table in leaderboard(part, _unnamed(part, wanted))]
    elif isinstance(board, str):
        board = spelled(find_board(board), set(frame["threat_label"].unique()))
    current, tables = newest(frame), []
    for data, part in frame[current].groupby("data", observed=True, sort=True):
        older = frame[~current & (frame["data"] == data) & frame["threat_label"].isin(board.threats)]
        tables.append(_table(part, board, left_out(older)))
    return tables


def _unnamed(frame: pandas.DataFrame, radii: Sequence[Fraction]) -> Board:
    """Return a column for each threat of the records of one task."""
    measured = (frame["verdict"].astype(str) == Verdict.MEASURED.value).any()
    return board_of(list(frame["threat_label"].unique()), radii=radii, reduce="perplexity" if measured else "worst")


def radius_of(radius: str | Fraction) -> Fraction:
    """Read a radius such as ``8/255``."""
    try:
        found = exact(str(radius))
    except ValueError:
        found = Fraction(-1)
    if found < 0:
        raise BadValue(f"radius {radius!r}: expected a number of pixels from 0 to 1, such as '8/255'")
    return found


def _table(frame: pandas.DataFrame, board: Board, remarks: Sequence[str]) -> Table:
    drafts: list[tuple[Row, list[_Column]]] = []
    groups = list(frame.groupby(["model", "seed"], observed=True, sort=True))
    names = [str(part["model_name"].iloc[0]) for _, part in groups]
    for (key, part), name in zip(groups, names, strict=True):
        model, seed = str(key[0]), int(str(key[1]))
        several = len({m for (m, _), other in zip((k for k, _ in groups), names, strict=True) if other == name}) > 1
        label = f"{name} #{model.rpartition('-')[2][:6]}" if several else name
        filled = [_fill(part, column) for column in board.columns]
        checkpoint, command = (str(part[name].iloc[0]) if name in part else "" for name in ("checkpoint", "command"))
        signs = tuple(map(str, indicators.flags(part)))
        row = Row(
            model, label, seed, tuple(one.cell for one in filled), checkpoint=checkpoint, command=command, flags=signs
        )
        drafts.append((row, filled))
    titles = [column.title for column in board.columns]
    ranking = titles.index(board.rank_by) if board.rank_by else len(titles) - 1
    sign = 1 if board.columns[ranking].higher_is_better else -1
    rows = _ranked([(row, filled[ranking]) for row, filled in drafts], sign, board.columns[ranking].reduce)
    held_out = {flag for row in rows for flag in row.flags}
    own = sorted({flag for row in rows for cell in row.cells for flag in cell.flags} - held_out)
    notes = [*remarks, *own, *(f"{row.name}, without rank: {flag}" for row in rows for flag in row.flags)]
    return Table(board, str(frame["data"].iloc[0]), str(frame["data_name"].iloc[0]), tuple(rows), tuple(notes))


@dataclass(frozen=True)
class _Column:
    """A filled column of one row: its cell, and one number for each sample, for the paired tests."""

    cell: Cell
    outcome: dict[str, Any]


def _fill(part: pandas.DataFrame, column: Column) -> _Column:
    chosen = part[part["threat_label"].isin(column.threats)]
    for label, same in chosen.groupby("threat_label", observed=True):
        variants = same[["threat", "threat_version"]].drop_duplicates()
        if len(variants) > 1:
            raise BadValue(
                f"column {column.title!r}: {part['model_name'].iloc[0]} has records of {len(variants)} implementations of "
                f"{label}; keep one of them"
            )
    expected = max((int(planned) for planned in part["planned"].unique()), default=0)
    verdicts = chosen["verdict"].astype(str)
    invalid = int(chosen.loc[verdicts == Verdict.INVALID.value, "sample"].nunique())
    failed = int(chosen.loc[verdicts == Verdict.FAILED.value, "sample"].nunique())
    outcome = per_sample(chosen, column.threats, column.reduce, column.within)
    count = len(outcome)
    blank = Cell(None, None, None, count, expected, column.protocol, invalid, failed, _flags(chosen), **_costs(chosen))
    if column.reduce in ("distance", "perplexity"):
        blank = replace(blank, kind=column.reduce)
    if count < expected or invalid or failed or not count:
        return _Column(blank, outcome)
    value, low, high = with_interval(list(outcome.values()), column.reduce)
    return _Column(replace(blank, value=value, low=low, high=high), outcome)


def _costs(chosen: pandas.DataFrame) -> dict[str, Any]:
    """Return forward passes, backward passes and seconds per sample."""
    samples = max(1, chosen["sample"].nunique())
    names = ("forwards", "backwards", "seconds")
    return {name: float(chosen[name].sum()) / samples for name in names if name in chosen and len(chosen)}


def _flags(chosen: pandas.DataFrame) -> tuple[str, ...]:
    """Return the remarks of the runs, and the signs of a failed attack in these records alone."""
    remarks = {flag for text in chosen["flags"].unique() for flag in str(text).split("; ") if flag}
    return tuple(sorted(remarks | set(map(str, indicators.flags(chosen)))))


def _ranked(rows: list[tuple[Row, _Column]], sign: int, reduce: str) -> list[Row]:
    """Order rows by value and give those that a paired test cannot tell from the first of their group one rank.

    Rows with flags or without a value follow, without rank.
    """
    valued = sorted(
        ((row, column) for row, column in rows if column.cell.value is not None and not row.flags),
        key=lambda pair: (-sign * (pair[1].cell.value or 0.0), pair[0].name, pair[0].seed),
    )
    ranks: list[int] = []
    leader = 0
    for index, (_, column) in enumerate(valued):
        if index and not _tied(valued[leader][1].outcome, column.outcome, reduce):
            leader = index
        ranks.append(leader + 1)
    ranked = [replace(row, rank=rank, tied=ranks.count(rank) > 1) for (row, _), rank in zip(valued, ranks, strict=True)]
    held = [(row, column.cell.value) for row, column in rows if column.cell.value is None or row.flags]
    held.sort(key=lambda pair: (pair[1] is None, -sign * (pair[1] or 0.0), pair[0].name, pair[0].seed))
    return ranked + [row for row, _ in held]


def _tied(first: dict[str, Any], second: dict[str, Any], reduce: str) -> bool:
    common = sorted(first.keys() & second.keys())
    return p_value([first[sample] for sample in common], [second[sample] for sample in common], reduce) >= ALPHA
