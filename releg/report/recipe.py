"""recipe.md: trials of learning rates, schedules and warm-ups, by validation bound."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from releg.files import readable
from releg.records.file_names import RECIPE_PAGE, TRIALS
from releg.records.names import label_of
from releg.report.numbers import count, distinct, nats
from releg.report.page import Column, markdown, write_page
from releg.report.settings import SCHEDULES

Trial = dict[str, Any]

CAPTION = f"""# Trials of the learning rate

Runs with RMSprop and batches of 100, seed 0; negative elbo on the validation images, the lowest of a run, in nats
(lower is better). Nothing is compared on the test images. `python -m lightning_modules.studies.recipe` makes the
trials, in `{TRIALS}`. Training bits are redrawn at every access, or drawn once.

{SCHEDULES}"""
COLUMNS: list[Column[Trial]] = [
    Column("estimator", lambda trial: label_of(trial["estimator"]), is_text=True),
    Column(
        "training bits", lambda trial: "drawn once" if trial["binarization"] == "fixed" else "redrawn", is_text=True
    ),
    Column("schedule", lambda trial: trial["shape"].replace("_", " "), is_text=True),
    Column("peak rate", lambda trial: f"{trial['rate']:g}"),
    Column("warm-up", lambda trial: count(trial["warmup"])),
    Column("negative elbo", lambda trial: nats(-trial["val/elbo"])),
    Column("best step", lambda trial: count(trial["best_step"])),
]


def write_recipe(results: Path) -> str:
    """Write recipe.md: a table per net and number of steps, the lowest bound of each estimator first."""
    with readable(results / TRIALS, "what python -m lightning_modules.studies.recipe writes", "run it again"):
        trials: list[Trial] = json.loads((results / TRIALS).read_bytes())
        groups = sorted({_group(trial) for trial in trials})
        tables = [part for group in groups for part in _table(group, [t for t in trials if _group(t) == group])]
        commits = distinct(text for trial in trials for text in trial["commit"].split("; "))
    return write_page(results / RECIPE_PAGE, CAPTION, *tables, f"Commits: {commits}")


def _group(trial: Trial) -> tuple[str, int]:
    """The table in which a trial stands: its net and number of steps."""
    return trial["architecture"], trial["steps"]


def _table(group: tuple[str, int], trials: Sequence[Trial]) -> list[str]:
    ordered = sorted(trials, key=lambda trial: (trial["estimator"], -trial["val/elbo"]))
    return [f"## SBN({group[0]}), {group[1]:,} steps", markdown(COLUMNS, ordered)]
