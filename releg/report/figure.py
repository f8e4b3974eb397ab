"""How all figures look, and how they become files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, LogLocator, NullLocator

from releg.files import write_atomically

FONT: Any = {
    "font.size": 8,
    "font.family": "DejaVu Sans",
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.linewidth": 0.3,
    "grid.color": "0.88",
    "pdf.fonttype": 42,  # text stays text
}
in_style = mpl.rc_context(FONT)  # decorates what draws a figure


def panels_beside(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with this many panels, called (a), (b), ..."""
    figure = Figure(figsize=(0.4 + 3.1 * count, 2.7), layout="constrained")
    panels = list(figure.subplots(1, count, squeeze=False)[0])
    for letter, panel in zip("abcdef", panels, strict=False):
        panel.set_title(f"({letter})", loc="left", fontsize=8, fontweight="bold")
        panel.grid(True, which="major")
    return figure, panels


def number_ticks(axis: Axis, locator: Locator | None = None) -> None:
    """Plain numbers where the locator says, by default at 1, 2 and 5 times powers of ten; no minor ticks."""
    axis.set_major_locator(locator or LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def write_figure(path: Path, figure: Figure, dpi: int = 300) -> Path:
    """Write a .png or .pdf without dates: the same numbers make the same bytes."""
    data = io.BytesIO()
    form = path.suffix[1:]
    metadata: dict[str, Any] = {"CreationDate": None} if form == "pdf" else {"Software": None}
    with mpl.rc_context(FONT):
        figure.savefig(data, format=form, dpi=dpi, metadata=metadata)
    return write_atomically(path, data.getvalue())
