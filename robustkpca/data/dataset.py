"""What every data set offers, whatever its files look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from robustkpca.preprocessing import Preprocessing
from robustkpca.specs import DataSpec


@runtime_checkable
class Dataset(Protocol):
    """Labelled samples, read a few at a time; a position counts from 0 in the order of ``ids``."""

    @property
    def spec(self) -> DataSpec:
        """Name, layout, size, number of classes and fingerprint."""
        ...

    @property
    def ids(self) -> tuple[str, ...]:
        """One stable name per sample: the path below the folder of the data, or ``name/000012`` for arrays."""
        ...

    @property
    def labels(self) -> tuple[int, ...]:
        """The true class of every sample, from 0 to ``spec.classes`` - 1."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """``spec.classes`` names, in the order of the labels."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """Lines about choices made while the layout was recognised; a command shows them on stderr."""
        ...

    def check(self, positions: Sequence[int], preprocessing: Preprocessing) -> dict[int, str]:
        """Find out, before anything is computed, whether these samples can be read.

        Args:
            positions: Which samples will be read.
            preprocessing: What will be applied.

        Returns:
            The positions of damaged samples, with the reason.

        Raises:
            BadValue: If sizes differ and nothing makes them equal.
        """
        ...

    def read(self, positions: Sequence[int], preprocessing: Preprocessing) -> Any:
        """Read some samples; the memory needed grows with their number only.

        Args:
            positions: Which samples, in the order wanted.
            preprocessing: Resize, crop and channels are applied here; mean and std are the model's business.

        Returns:
            Of images ``(len(positions), C, H, W)``, float32, in [0, 1]; of other samples what their task takes.

        Raises:
            BadValue: If a file is damaged, or sizes differ and no crop makes them equal.
        """
        ...
