"""compare.md and compare.png from compare.json: variance, bias and cost of every estimator at the same weights."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from releg.files import readable
from releg.records.file_names import COMPARE
from releg.records.names import label_of
from releg.report.figure import in_style, write_figure
from releg.report.numbers import count, nats, one_decimal, plain, with_error
from releg.report.page import Column, made_by, markdown, write_page

Row = dict[str, Any]

DETECTED = 5.0  # standard errors of bias² above zero
LR = "likelihood_ratio"

CAPTION = """# Every estimator at the same weights

{title}; {images} training images, {samples} estimates each. ± is one standard error over images, also in the figure.

- variance: trace of the covariance of the gradient w.r.t. all weights and biases of the inference net, for one image;
  total variance: for a random image
- bias: distance between the mean estimate and a long average of common random numbers, relative to the length of that
  gradient, with z = bias² / its standard error; "below" is the bound from bias² + 2 standard errors, where z is at most
  5 and it says anything. An estimator of the multi-sample bound has none
- a step is noise, estimate, backward, RMSprop on 100 images; the ratio to LR is the median over rounds in which both
  took turns, and ms per step is this ratio times LR's median ({fastest:.1f} to {slowest:.1f} ms in these rounds)
- gain over LR: LR's variance × ms divided by the estimator's
"""
FIGURE = """![variance against the cost of a step](compare.png)

The numbers are those of the table. Crosses are biased, triangles unbiased for the multi-sample bound. The line is the
Pareto front of the other estimators. `compare.json` also has the variance of each layer.
"""
MADE = """## How it was made

- `{command}`
- {minutes:.1f} minutes
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
    with readable(path, "what releg compare writes", "run it again"):
        document = json.loads(path.read_bytes())
        rows = sorted(on_one_clock(document["rows"]), key=work)
        parts = _parts(document, rows)
    write_figure(path.with_suffix(".png"), draw(rows), dpi=200)
    return write_page(path.with_suffix(".md"), *parts)


def _parts(document: dict[str, Any], rows: list[Row]) -> list[str]:
    times = [row["lr_ms_per_step"] for row in rows]
    caption = CAPTION.format(
        title=document["title"],
        images=rows[0]["num_images"],
        samples=rows[0]["samples_per_image"],
        fastest=min(times),
        slowest=max(times),
    )
    origin = MADE.format(
        command=document["command"],
        minutes=sum(row["seconds"] for row in rows) / 60,
        steps=count(document["baseline_steps"]),
        own="yes" if document["own_baselines"] else "no",
    )
    return [caption, markdown(_columns(rows), rows), FIGURE, origin, made_by([document["provenance"]])]


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


def _columns(rows: Sequence[Row]) -> list[Column[Row]]:
    number = {row["estimator"]: str(place) for place, row in enumerate(rows, start=1)}
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
def draw(rows: Sequence[Row]) -> Figure:
    """Variance against cost, both logarithmic; a legend tells which number is which estimator."""
    figure = Figure(figsize=(6.8, 4.2), layout="constrained")
    panel = figure.subplots()
    panel.set(xscale="log", yscale="log", xlabel="ms per training step (100 images)")
    panel.set_ylabel("variance of the inference gradient, one image")
    edge = [(row["ms_per_step"], row["within"]["value"]) for row in front(rows)]
    panel.step(*zip(*edge, strict=True), where="post", color=MARKERS["unbiased"][0], linewidth=1, alpha=0.4)
    for place, row in enumerate(rows, start=1):
        colour, marker, face = MARKERS[kind_of(row)]
        point = (row["ms_per_step"], row["within"]["value"])
        look: dict[str, Any] = {
            "marker": marker,
            "color": colour,
            "markerfacecolor": face,
            "markersize": 4,
            "linestyle": "none",
        }
        label = f"{place}  {label_of(row['estimator'], row['label'])}"
        panel.errorbar(*point, yerr=row["within"]["standard_error"], elinewidth=0.8, label=label, **look)
        panel.annotate(str(place), point, xytext=(0, 4), textcoords="offset points", fontsize=6.5, ha="center")
    panel.margins(x=0.08, y=0.08)
    panel.grid(which="major")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_locator(NullLocator())
    figure.legend(fontsize=6, loc="outside right upper", labelspacing=0.35)
    return figure
