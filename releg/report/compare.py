"""compare.md and compare.png from compare.json: variance, bias and cost of every estimator at the same weights."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from releg.files import readable
from releg.records.file_names import COMPARE
from releg.records.names import label_of
from releg.report.figure import in_style, number_ticks, write_figure
from releg.report.numbers import count, nats, one_decimal, plain, with_error
from releg.report.page import Column, made_by, markdown, write_page

Row = dict[str, Any]
Pair = tuple[Row, Row]

DETECTED = 5.0  # standard errors of bias² above zero
LR = "likelihood_ratio"

PAIRS = (  # as many simulations each, one and one more from each layer on
    ("sibling_rodeo", "sibling_double_control"),
    ("sibling_double_control", "sibling_leave_one_out"),
    ("sibling_leave_one_out", "disarm"),
    ("sibling_rodeo", "disarm"),
)

CAPTION = """# Every estimator at the same weights

± is one standard error over images, also in the figure. One table for each file of weights.

- variance: trace of the covariance of the gradient w.r.t. all weights and biases of the inference net, for one image;
  total variance: for a random image
- bias: distance between the mean estimate and a long average of common random numbers, relative to the length of that
  gradient, with z = bias² / its standard error; "below" is the bound from bias² + 2 standard errors, where z is at most
  5 and it says anything. An estimator of the multi-sample bound has none
- a step is noise, estimate, backward, RMSprop on 100 images; the ratio to LR is the median over rounds in which both
  took turns, and ms per step is this ratio times LR's median
- gain over LR: LR's variance × ms divided by the estimator's
- RODEO, Double CV and RLOO compare independent paths from x; their sibling forms are those published for several
  layers, in which the two samples of a layer share their parents
- at equal numbers of simulations: ratios of the variances w.r.t. the weights and biases of a layer, paired by image
"""
FIGURE = """![variance against the cost of a step](compare.png)

The numbers are those of the first table. Crosses are biased, triangles unbiased for the multi-sample bound. The line is
the Pareto front of the other estimators. `compare.json` also has the variance of each layer.
"""
MADE = """- `{command}`, {minutes:.1f} minutes, {images} training images with {samples} estimates each
- LR's step took {fastest:.1f} to {slowest:.1f} ms in the rounds of the timing
- baselines and control variates were trained for {steps} mini-batches at these weights; those of the run's own
  estimator came with it: {own}
"""
MARKERS = {  # colour, marker and face by kind
    "unbiased": ("#1f4e79", "o", "#1f4e79"),
    "unbiased for the multi-sample bound": ("#6b6b6b", "^", "none"),
    "biased": ("#b3471d", "X", "#b3471d"),
}


def write_compare(results: Path) -> str:
    """Write the page and its figure; return the Markdown."""
    path = results / COMPARE
    compared = read_compared(path)
    with readable(path, "what releg compare writes", "run it again"):
        tables = {document["title"]: on_one_clock(document["rows"]) for document in compared}
        number = numbered(compared)
        parts = [part for document in compared for part in _section(document, number)]
    write_figure(path.with_suffix(".png"), draw(tables, number), dpi=200)
    made = made_by([document["provenance"] for document in compared])
    return write_page(path.with_suffix(".md"), CAPTION, FIGURE, *parts, "## How it was made", made)


def read_compared(path: Path) -> list[dict[str, Any]]:
    """What was measured, by file of weights."""
    with readable(path, "what releg compare writes", "delete it, and run releg compare for each file of weights"):
        compared = json.loads(path.read_bytes())
        return [document for document in compared if document["weights"]]


def numbered(compared: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The number of every estimator: its place in the first table, then in the others."""
    tables = [sorted(on_one_clock(document["rows"]), key=work) for document in compared]
    names = dict.fromkeys(row["estimator"] for rows in tables for row in rows)
    return {name: str(place) for place, name in enumerate(names, start=1)}


def _section(document: dict[str, Any], number: dict[str, str]) -> list[str]:
    rows = sorted(on_one_clock(document["rows"]), key=work)
    times = [row["lr_ms_per_step"] for row in rows]
    origin = MADE.format(
        command=document["command"],
        minutes=sum(row["seconds"] for row in rows) / 60,
        images=rows[0]["num_images"],
        samples=rows[0]["samples_per_image"],
        fastest=min(times),
        slowest=max(times),
        steps=count(document["baseline_steps"]),
        own="yes" if document["own_baselines"] else "no",
    )
    title = f"## {document['title']}"
    return [title, markdown(_columns(rows, number), rows), *_paired(rows), origin]


def _paired(rows: Sequence[Row]) -> list[str]:
    """The table of ratios at equal numbers of simulations, with its title; nothing without these estimators."""
    by_name = {row["estimator"]: row for row in rows}
    pairs = [(by_name[one], by_name[other]) for one, other in PAIRS if one in by_name and other in by_name]
    if not pairs:
        return []
    columns = [Column[Pair]("variance", lambda pair: " / ".join(map(name_of, pair)), is_text=True)]
    columns += [_ratio_column(layer) for layer in range(len(rows[0]["layers"]))]
    return ["At equal numbers of simulations:", markdown(columns, pairs)]


def _ratio_column(layer: int) -> Column[Pair]:
    return Column(f"layer {layer + 1}", lambda pair: with_error(*paired_ratio(*pair, layer)))


def paired_ratio(row: Row, other: Row, layer: int) -> tuple[float, float]:
    """The ratio of two mean variances of a layer on the same images, and its standard error (delta method)."""
    ours, theirs = row["within_by_image"][layer], other["within_by_image"][layer]
    ratio = sum(ours) / sum(theirs)
    left = [one - ratio * two for one, two in zip(ours, theirs, strict=True)]
    return ratio, statistics.stdev(left) / math.sqrt(len(left)) / statistics.fmean(theirs)


def on_one_clock(rows: list[Row]) -> list[Row]:
    """Milliseconds as if all were timed together: the ratio to LR times the median of LR's times."""
    clock = statistics.median(row["lr_ms_per_step"] for row in rows)
    ratios = [1.0 if row["estimator"] == LR else row["ratio_to_lr"] for row in rows]  # LR's own differs by noise
    return [
        {**row, "ratio_to_lr": ratio, "ms_per_step": ratio * clock} for row, ratio in zip(rows, ratios, strict=True)
    ]


def work(row: Row) -> float:
    """Work-normalised variance: variance times milliseconds."""
    return float(row["within"]["value"] * row["ms_per_step"])


def name_of(row: Row) -> str:
    """The estimator, with a warning if it is biased or climbs another bound."""
    return label_of(row["estimator"], row["label"], row["unbiased"], row["objective"])


def bias(row: Row) -> str | None:
    """The relative bias if one is detected, else an upper bound for it; None if nothing can be said."""
    value, error = row["bias2"]["value"], row["bias2"]["standard_error"]
    if row["objective"] != "elbo" or row["gradient2"] <= 0:
        return None
    if value > DETECTED * error:
        return f"{math.sqrt(value / row['gradient2']):.0%}" + (f" (z = {value / error:.0f})" if error else "")
    bound = math.sqrt((max(value, 0.0) + 2 * error) / row["gradient2"])
    return f"below {bound:.0%}" if bound < 1 else None


def _columns(rows: Sequence[Row], number: dict[str, str]) -> list[Column[Row]]:
    reference = next((work(row) for row in rows if row["estimator"] == LR), None)
    return [
        Column("", lambda row: number[row["estimator"]]),
        Column("estimator", name_of, is_text=True),
        Column("variance", lambda row: _figure(row["within"])),
        Column("total variance", lambda row: _figure(row["total"])),
        Column("bias", bias),
        Column("evaluations", lambda row: count(row["evaluations"])),
        Column("ms per step", lambda row: one_decimal(row["ms_per_step"])),
        Column("ratio to LR", lambda row: nats(row["ratio_to_lr"])),
        Column("variance × ms", lambda row: plain(work(row))),
        Column("gain over LR", lambda row: None if reference is None else plain(reference / work(row))),
    ]


def _figure(figure: dict[str, float]) -> str:
    return with_error(figure["value"], figure["standard_error"])


def front(rows: Sequence[Row]) -> list[Row]:
    """The Pareto front of the unbiased estimators: none is both cheaper and of lower variance. Cheapest first."""
    fair = [row for row in rows if kind_of(row) == "unbiased"]
    best: list[Row] = []
    for row in sorted(fair, key=lambda row: (row["ms_per_step"], row["within"]["value"])):
        if not best or row["within"]["value"] < best[-1]["within"]["value"]:
            best.append(row)
    return best


def kind_of(row: Row) -> str:
    """Whether it is unbiased, biased, or unbiased for another bound: a key of MARKERS."""
    if not row["unbiased"]:
        return "biased"
    return "unbiased" if row["objective"] == "elbo" else "unbiased for the multi-sample bound"


@in_style
def draw(tables: dict[str, list[Row]], number: dict[str, str]) -> Figure:
    """Variance against cost, both logarithmic, a panel per table; a legend tells which number is which estimator."""
    columns = min(2, len(tables))
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(3.4 * columns + 1.6, 2.9 * rows + 1.2), layout="constrained")
    labels = {row["estimator"]: label_of(row["estimator"], row["label"]) for rows in tables.values() for row in rows}
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, (title, points) in zip(panels, tables.items(), strict=False):
        panel.set_title(title, fontsize=7)
        _draw_panel(panel, points, number)
    for panel in panels[len(tables) :]:
        panel.set_visible(False)
    figure.supxlabel("ms per training step (100 images)", fontsize=8)
    figure.supylabel("variance of the inference gradient, one image", fontsize=8)
    handles = [Line2D([], [], linestyle="none", label=f"{place}  {labels[name]}") for name, place in number.items()]
    figure.legend(handles=handles, fontsize=6, loc="outside right upper", labelspacing=0.35, handlelength=0)
    return figure


def _draw_panel(panel: Axes, rows: Sequence[Row], number: dict[str, str]) -> None:
    panel.set(xscale="log", yscale="log")
    edge = [(row["ms_per_step"], row["within"]["value"]) for row in front(rows)]
    panel.step(*zip(*edge, strict=True), where="post", color=MARKERS["unbiased"][0], linewidth=1, alpha=0.4)
    for row in rows:
        colour, marker, face = MARKERS[kind_of(row)]
        point = (row["ms_per_step"], row["within"]["value"])
        look: dict[str, Any] = {"marker": marker, "color": colour, "markerfacecolor": face, "markersize": 4}
        panel.errorbar(*point, yerr=row["within"]["standard_error"], elinewidth=0.8, linestyle="none", **look)
        text: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points", "fontsize": 6.5, "ha": "center"}
        panel.annotate(number[row["estimator"]], point, **text)
    panel.margins(x=0.08, y=0.08)
    panel.grid(which="major")
    number_ticks(panel.xaxis)
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
