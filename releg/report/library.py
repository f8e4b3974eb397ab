"""library.md and library.png: what the library's estimators cost and reach on three models, from library.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from releg.records.file_names import LIBRARY
from releg.report.figure import in_style, panels_beside, write_figure
from releg.report.numbers import count, one_decimal, plain
from releg.report.page import Column, made_by, markdown, write_page

TITLES = {"sbn": "SBN(200-200)", "vae": "three-layer VAE", "categorical": "categorical VAE"}
STYLES: dict[str, Any] = {
    "all_flips": {"label": "CRN, all flips", "color": "#0b3c8c"},
    "eight_flips": {"label": "CRN, 8 flips per layer", "color": "#0b3c8c", "linestyle": "--"},
    "disarm": {"label": "DisARM", "color": "#2a8a57"},
    "leave_one_out": {"label": "RLOO, 2 samples", "color": "#d1700f"},
    "reinmax": {"label": "ReinMax (biased)", "color": "#8a5aa8", "linestyle": ":"},
}
CAPTION = """# What the library's estimators cost and reach

On binarised MNIST, {batch} images per step: SBN(200-200) with the estimators made for it; the VAE of
`releg/examples/three_layer_vae.py`, 200 Bernoulli variables in three layers, with `releg.gradient`; that of
`releg/examples/categorical_vae.py`, 30 variables of ten states, with `releg.functional`. Lower is better.

- ms: CPU time of a step of Adam on one thread, medians over turns
- variance: of the mean gradient of a batch for the parameters of q, summed over them, all at the weights after
  {steps_before} steps with RLOO
- negative elbo: nats per image, of {validation_images} validation images, after {seconds} CPU seconds of training at
  the best of the rates that were tried, {rates}; one seed, so that small differences mean nothing"""
Report = Mapping[str, Any]


def write_library(results: Path) -> None:
    """Write the page and its figure; a model whose runs were not made has a table without them."""
    report = json.loads((results / LIBRARY).read_bytes())
    settings = {**report["settings"], "rates": ", ".join(f"{rate:g}" for rate in report["settings"]["rates"])}
    complete = {name for name, measured in report["models"].items() if {"times", "variances"} <= measured.keys()}
    models = {name: report["models"][name] for name in TITLES if name in complete}
    parts = [CAPTION.format_map(settings)]
    if trained := {name: measured for name, measured in models.items() if "training" in measured}:
        draw(results / "library.png", trained)
        parts.append("![negative elbo against CPU seconds](library.png)")
    for name, measured in models.items():
        parts += [f"## {TITLES[name][0].upper()}{TITLES[name][1:]}", markdown(columns(measured), list(STYLES))]
    write_page(results / "library.md", *parts, "## How it was made", made_by(list(report["provenance"].values())))


def columns(measured: Report) -> list[Column[str]]:
    """The columns of a model's table, whose rows are ways to estimate the gradient."""

    def last(way: str) -> Any:
        return best(measured, way)["points"][-1]

    measured_once: list[Column[str]] = [
        Column("estimator", lambda way: STYLES[way]["label"], is_text=True),
        Column("ms", lambda way: plain(measured["times"][way])),
        Column("variance", lambda way: plain(measured["variances"][way])),
    ]
    if "training" not in measured:
        return measured_once
    return [
        *measured_once,
        Column("negative elbo", lambda way: one_decimal(last(way)["negative_elbo"])),
        Column("steps", lambda way: count(last(way)["steps"])),
        Column("rate", lambda way: f"{best(measured, way)['rate']:g}"),
    ]


def best(measured: Report, way: str) -> Report:
    """The run with the rate that ends lowest."""
    runs = [run for run in measured["training"] if run["way"] == way]
    return min(runs, key=lambda run: run["points"][-1]["negative_elbo"])


@in_style
def draw(path: Path, models: Mapping[str, Report]) -> None:
    """The negative elbo against seconds, a panel for each model."""
    figure, panels = panels_beside(len(models))
    for panel, (name, measured) in zip(panels, models.items(), strict=True):
        panel.set_title(TITLES[name], fontsize=8)
        for way, style in STYLES.items():
            _curve(panel, best(measured, way)["points"][1:], style)
        panel.set(xlabel="CPU seconds of one thread", xlim=(0, None))
    panels[0].set_ylabel("negative elbo, validation (nats)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(STYLES))
    write_figure(path, figure)


def _curve(panel: Axes, points: list[Report], style: Mapping[str, Any]) -> None:
    panel.plot([p["seconds"] for p in points], [p["negative_elbo"] for p in points], linewidth=1.2, **style)
