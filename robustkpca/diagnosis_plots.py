"""The figures of a diagnosis; matplotlib comes with the extra ``plots``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robustkpca.diagnosis import Diagnosis
from robustkpca.errors import BadValue, Unusable

FIGURES = {
    "norms": ("phi", "h", "error"),
    "gamma": ("gamma_relative", "gamma_relative_random", "gamma_relative_eigen"),
    "alignment": ("cosine", "optimal_cosine", "linear_cka", "kernel_cka"),
}
"""Name of a figure over the layers, and its measures."""


def draw(diagnosis: Diagnosis, folder: Path) -> list[Path]:
    """Write figures as SVG, the same bytes for the same diagnosis.

    Args:
        diagnosis: What `diagnosis.diagnose` found.
        folder: Made where it is not there.

    Returns:
        The files: one for each of `FIGURES`, and ``pursuit.svg`` where there is RPC attention.

    Raises:
        BadValue: If the folder cannot be made.
        Unusable: If matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise Unusable("figures need matplotlib: pip install 'robustkpca[plots]', or leave out --plots") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadValue(f"--plots {str(folder)!r}: {error.strerror}; expected a folder that can be written") from None
    layers = diagnosis.layers()
    curves: dict[str, list[tuple[str, list[float]]]] = {
        name: [(measure, [layer[measure] for layer in layers]) for measure in measures]
        for name, measures in FIGURES.items()
    }
    traced = [head for head in diagnosis.heads if head.passes]
    if traced:
        curves["pursuit"] = [
            (f"layer {head.layer}, head {head.head}", [one["residual"] for one in head.passes]) for head in traced
        ]
    written = []
    with matplotlib.rc_context({"svg.hashsalt": "robustkpca"}):
        for name, lines in curves.items():
            figure: Any = Figure(figsize=(6, 4), layout="constrained")
            axes = figure.add_subplot()
            for title, values in lines:
                start = 1 if name == "pursuit" else 0
                axes.plot(range(start, start + len(values)), values, marker="o", label=title)
            axes.set_xlabel("pass" if name == "pursuit" else "layer")
            axes.set_ylabel("|K - L - S| / |K|" if name == "pursuit" else name)
            if name in ("norms", "gamma"):
                axes.set_yscale("log")
            axes.set_title(diagnosis.model)
            axes.legend(fontsize="small")
            written.append(folder / f"{name}.svg")
            figure.savefig(written[-1], metadata={"Date": None})
    return written
