"""How all figures look, and how they become files."""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

FONT: Any = {
    "font.size": 8,
    "font.family": "DejaVu Sans",
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # text stays text
}
in_style = mpl.rc_context(FONT)  # decorates what draws a figure


def as_bytes(figure: Figure, form: str = "png", dpi: int = 300) -> bytes:
    """The figure as a file, without dates: the same numbers make the same bytes."""
    data = io.BytesIO()
    metadata: dict[str, Any] = {"CreationDate": None} if form == "pdf" else {"Software": None}
    with mpl.rc_context(FONT):
        figure.savefig(data, format=form, dpi=dpi, metadata=metadata)
    return data.getvalue()
