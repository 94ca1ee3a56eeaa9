"""How a run shows on stderr: a bar on a terminal, a line per model elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from robustkpca.errors import plain

if TYPE_CHECKING:  # annotations only: the bar appears before torch is imported
    from robustkpca.threats import ThreatModel


class Reporter:
    """Hears how a run goes, and shows nothing of it."""

    def planned(self, samples: int) -> None:
        """Hear how many verdicts are missing, over all models and threats."""

    def model(self, name: str, reading: str, missing: int) -> None:
        """Hear that a model's turn has come: its name, how it reads samples, and the number of its missing verdicts."""

    def finished(self, threat: ThreatModel, samples: int) -> None:
        """Hear that a shard is written."""


class TerminalReporter(Reporter):
    """Draws the progress of a run.

    Args:
        quiet: Whether to show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("verdicts"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._total = self._bars.add_task("loading", total=None)
        self._name = ""

    def __enter__(self) -> TerminalReporter:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def planned(self, samples: int) -> None:
        """Hear how many verdicts are missing, over all models and threats."""
        if samples == 0:
            self._say("everything is there already")
            self._bars.update(self._total, visible=False)
        self._bars.update(self._total, description="scoring", total=samples)

    def model(self, name: str, reading: str, missing: int) -> None:
        """Hear that a model's turn has come: its name, how it reads samples, and the number of its missing verdicts."""
        self._name = name
        self._say(f"{name}: {missing} verdicts, {reading}")

    def finished(self, threat: ThreatModel, samples: int) -> None:
        """Hear that a shard is written."""
        self._bars.update(self._total, advance=samples, description=f"{self._name} {threat.label}")

    def _say(self, text: str) -> None:
        if self._quiet:
            return
        text = plain(text)
        if self._console.is_terminal:
            self._bars.console.print(text, highlight=False, markup=False)
        else:
            print(f"robustkpca: {text}", file=sys.stderr)
