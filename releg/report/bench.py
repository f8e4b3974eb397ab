"""bench.md and bench.png from bench.json, the numbers of `releg bench`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from releg.files import readable
from releg.records.file_names import BENCH
from releg.records.names import ESTIMATORS
from releg.report.figure import in_style, number_ticks, write_figure
from releg.report.numbers import one_decimal
from releg.report.page import Column, made_by, markdown, remove, write_page

Row = dict[str, Any]
Ways = dict[str, Row]  # the rows of one net, estimator and number of threads, by how the steps are taken

STEPS = """Milliseconds per step, medians over rounds in which everything takes a turn. Floor: only the matrix products
that a step cannot avoid, in torch. JAX: the same net, batch, baselines and RMSprop, jitted, 100 steps (CRN: 5) in one
`lax.scan`. Eager and compiled: ours in a bare loop, with batches at hand. Trainer: `releg fit`
without validation, which also draws its batches and logs."""
RATIOS = """How many times as long one step takes as another in the same round, with quartiles over rounds. Ours is
compiled where there is a compiler."""
GROWTH = """Both with all threads, at initial weights, at which a flip changes about as many units of the next layer as
the square root of their number. That adds a power of 1/2 to CRN's growth."""
BREAKS = """The loss of each shipped estimator under `torch.compile`: one graph, or several with functions in between
that stay Python, since the sizes of their arrays depend on numbers or since they differentiate on the way."""
MARKERS = {"lr": "o", "crn": "s"}
AXES = {"units": "units per layer, depth 2", "depth": "depth, 200 units per layer"}


def write_bench(results: Path) -> list[Path]:
    """Write the page and the plot next to the numbers; return their paths, the page first."""
    path = results / BENCH
    page, plot = path.with_suffix(".md"), path.with_suffix(".png")
    with readable(path, "the numbers of a benchmark", "run releg bench first"):
        document = json.loads(path.read_bytes())
        write_page(page, *parts(document))
    if not document["growth"]:
        remove(plot)
        return [page]
    write_figure(plot, draw(document["growth"]))
    return [page, plot]


def parts(document: dict[str, Any]) -> list[str]:
    """The page."""
    run, grouped = document["run"], by_ways(document["steps"])
    growth = [] if not document["growth"] else ["## Growth", GROWTH, "![time of a step against size](bench.png)"]
    return [
        "# What a training step costs",
        f"{made_by([run])}\n- command: `{' '.join(run['command'])}`",
        STEPS,
        markdown([*NET, *(_time(head, way) for head, way in TIMES.items())], grouped),
        RATIOS,
        markdown([*NET, *(_ratio(head, *which) for head, which in OTHERS.items())], grouped),
        *growth,
        markdown(SIZES, document["growth"]),
        *(["## One graph, or several", BREAKS] if document["graph_breaks"] else []),
        markdown(GRAPHS, document["graph_breaks"]),
    ]


def by_ways(rows: Sequence[Row]) -> list[Ways]:
    """The rows of bench.json that belong together."""
    groups: dict[tuple[Any, ...], Ways] = {}
    for row in rows:
        key = row["architecture"], row["threads"], row["estimator"]
        groups.setdefault(key, {})[row["way"]] = row
    return list(groups.values())


def fact(ways: Ways, name: str) -> Any:
    """What all rows of a group have in common."""
    return next(iter(ways.values()))[name]


def fastest(ways: Ways) -> Row:
    """The row of our bare steps."""
    return ways.get("compiled") or ways["eager"]


def _time(head: str, way: str) -> Column[Ways]:
    return Column(head, lambda ways: f"{ways[way]['ms'][0]:.2f}" if way in ways else None)


def _ratio(head: str, way: str, to: str) -> Column[Ways]:
    def cell(ways: Ways) -> str | None:
        row = fastest(ways) if way == "ours" else ways[way]
        return "{:.2f} ({:.2f} to {:.2f})".format(*row["ratio_to"][to]) if to in row["ratio_to"] else None

    return Column(head, cell)


NET: list[Column[Ways]] = [
    Column("SBN", lambda ways: fact(ways, "architecture"), is_text=True),
    Column("weights", lambda ways: fact(ways, "weights"), is_text=True),
    Column("threads", lambda ways: str(fact(ways, "threads"))),
    Column("estimator", lambda ways: ESTIMATORS[fact(ways, "estimator")].label, is_text=True),
]
TIMES = {"floor": "floor", "JAX": "jax", "eager": "eager", "compiled": "compiled", "Trainer": "trainer"}
OTHERS = {"ours / floor": ("ours", "floor"), "ours / JAX's LR": ("ours", "jax"), "ours / our LR": ("ours", "lr")}
OTHERS |= {"Trainer / bare": ("trainer", "bare")}
SIZES: list[Column[Row]] = [
    Column("units per layer", lambda row: str(row["units"])),
    Column("depth", lambda row: str(row["depth"])),
    Column("estimator", lambda row: ESTIMATORS[row["estimator"]].label, is_text=True),
    Column("ms", lambda row: one_decimal(row["ms"][0])),
    Column("ratio to LR", lambda row: f"{row['ratio_to']['lr'][0]:.2f}"),
]
GRAPHS: list[Column[Row]] = [
    Column("estimator", lambda row: row["label"], is_text=True),
    Column("graphs", lambda row: str(row["graphs"])),
    Column("what stays Python", lambda row: ", ".join(f"`{name}`" for name in row["breaks"]), is_text=True),
]


@in_style
def draw(rows: Sequence[Row]) -> Figure:
    """One panel per study; the bars are quartiles over rounds, the legend shows the fitted exponents."""
    studies = [study for study in AXES if any(row["study"] == study for row in rows)]
    figure = Figure(figsize=(3.4 * len(studies), 3.0), layout="constrained")
    panels = figure.subplots(1, len(studies), sharey=True, squeeze=False)[0]
    for panel, study, letter in zip(panels, studies, "ab", strict=False):
        _fill(panel, study, [row for row in rows if row["study"] == study])
        panel.set_title(f"({letter})", loc="left", fontweight="bold")
    panels[0].set_ylabel("ms per training step")
    return figure


def exponent(rows: Sequence[Row], study: str) -> float:
    """Least-squares exponent a of ms = c * size**a."""
    return float(np.polyfit(np.log([row[study] for row in rows]), np.log([row["ms"][0] for row in rows]), 1)[0])


def _fill(panel: Axes, study: str, rows: Sequence[Row]) -> None:
    for name, marker in MARKERS.items():
        curve = [row for row in rows if row["estimator"] == name]
        middle, low, high = np.array([row["ms"] for row in curve]).T
        power = f", exponent {exponent(curve, study):.2f}" if len(curve) > 1 else ""
        look: dict[str, Any] = {"marker": marker, "markersize": 4, "linewidth": 1.2, "elinewidth": 0.7, "capsize": 1.5}
        look |= {"color": ESTIMATORS[name].colour, "label": ESTIMATORS[name].label + power}
        panel.errorbar([row[study] for row in curve], middle, yerr=[middle - low, high - middle], **look)
    panel.set(xscale="log", yscale="log", xlabel=AXES[study])
    number_ticks(panel.xaxis, FixedLocator(sorted({row[study] for row in rows})))
    number_ticks(panel.yaxis)
    panel.grid(True)
    panel.legend(loc="upper left")
