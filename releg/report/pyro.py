"""pyro.md: Pyro's examples with `releg.pyro.ELBO` as their loss, from pyro.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from releg.records.file_names import PYRO
from releg.report.numbers import plain
from releg.report.page import Column, made_by, markdown, write_page


def write_pyro(results: Path) -> None:
    """Write the page."""
    report = json.loads((results / PYRO).read_bytes())
    settings, made = report["settings"], report["provenance"]
    parts = [
        "# Pyro's examples with another loss",
        "Model and guide are Pyro's, unchanged; only the loss is another one. Variance: of the gradient per image for "
        "the parameters that belong to the discrete sites alone, summed over them, on one mini-batch, all at the "
        f"weights after {settings['steps']} steps with common random numbers; baselines were trained for "
        f"{settings['of_baselines']} more steps at these weights. Milliseconds: CPU time of a step, medians. Bound: "
        f"log p - log q per image, of {settings['held_out']} held-out images, after the same CPU seconds of training; "
        "one seed, so that small differences mean nothing. The examples' own learning rates, 0.0001 and 0.00042, are "
        "for long runs.",
    ]
    for example in report["examples"].values():
        measured = [example.get(part, {}) for part in ("times", "variances", "training")]
        losses = [loss for loss in measured[0] if all(loss in part for part in measured)]
        parts += [f"## {example['title']}", f"{example['sites']}.", markdown(columns(example), losses)]
    write_page(results / "pyro.md", *parts, "## How it was made", f"{made_by([made])}\n- Pyro: {made['pyro']}")


def columns(example: Mapping[str, Any]) -> list[Column[str]]:
    """The columns of an example's table, whose rows are losses."""
    variances, times, training = (example[part] for part in ("variances", "times", "training"))

    def best(loss: str) -> Mapping[str, float]:
        return max(training[loss], key=lambda run: run["bound"])

    return [
        Column("loss", str, is_text=True),
        Column("variance", lambda loss: plain(variances[loss])),
        Column("ms per step", lambda loss: f"{times[loss]:.0f}"),
        Column(f"bound after {example['seconds']:g} s, nats", lambda loss: f"{best(loss)['bound']:.1f}"),
        Column("steps", lambda loss: f"{best(loss)['steps']:,}"),
        Column("rate", lambda loss: f"{best(loss)['rate']:g}"),
    ]
