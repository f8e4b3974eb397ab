"""pyro.md: Pyro's examples with `releg.pyro.ELBO` as their loss, from pyro.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from releg.records.file_names import PYRO
from releg.report.numbers import count, one_decimal, plain
from releg.report.page import Column, made_by, markdown, write_page

CAPTION = """# Pyro's examples with another loss

Model and guide are Pyro's, unchanged; only the loss is another one. Lower is better.

- variance: of the gradient per image for the parameters that belong to the discrete sites alone, summed over them, on
  one mini-batch, all at the weights after {steps_before} steps with common random numbers; baselines were trained for
  {steps_of_baselines} more steps at these weights
- ms per step: CPU time of a step of Adam, medians over turns
- negative elbo: nats per image, of {held_out} held-out images, after the same CPU seconds of training at the better of
  the learning rates that were tried; one seed, so that small differences mean nothing"""
HEADINGS = {
    "air": "## AIR\n\nThree Bernoulli sites, each followed by Normal ones; `vectorize=False`.",
    "ss_vae": "## Semi-supervised VAE, without labels\n\nA OneHotCategorical site of ten states, followed by a Normal.",
}


def write_pyro(results: Path) -> None:
    """Write the page; examples that were measured in part are left out."""
    report = json.loads((results / PYRO).read_bytes())
    settings = report["settings"]
    parts = [CAPTION.format_map(settings)]
    for name, measured in report["models"].items():
        if len(measured) == 3:
            table = markdown(columns(measured, settings["seconds"][name]), list(measured["times"]))
            parts += [HEADINGS[name], table]
    made = f"{made_by(list(report['provenance'].values()))}\n- Pyro: {settings['pyro']}"
    write_page(results / "pyro.md", *parts, "## How it was made", made)


def columns(measured: Mapping[str, Any], seconds: float) -> list[Column[str]]:
    """The columns of an example's table, whose rows are losses."""
    variances, times = measured["variances"], measured["times"]
    best = {loss: min(runs, key=lambda run: run["negative_elbo"]) for loss, runs in measured["training"].items()}
    return [
        Column("loss", str, is_text=True),
        Column("variance", lambda loss: plain(variances[loss])),
        Column("ms per step", lambda loss: f"{times[loss]:.0f}"),
        Column(f"negative elbo after {seconds:g} s", lambda loss: one_decimal(best[loss]["negative_elbo"])),
        Column("steps", lambda loss: count(best[loss]["steps"])),
        Column("rate", lambda loss: f"{best[loss]['rate']:g}"),
    ]
