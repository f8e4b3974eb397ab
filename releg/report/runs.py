"""results/runs.json and the files of the runs that it names, as the reports see them."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What the budgets of reproduce.sh are called; a run of any other length goes by its number of steps
BUDGETS = {200: "smoke", 10_000: "quick", 200_000: "standard", 2_000_000: "paper"}
AUTHORS_STEPS = 2_000_000  # of the authors' later code
ESTIMATORS = {"LikelihoodRatio": "lr", "CommonRandomNumbers": "crn"}
NAMES = {"lr": "LR", "crn": "CRN"}
WHOLE = ("step", "layer", "seed")  # columns of whole numbers


@dataclass(frozen=True)
class Run:
    """A finished run: its saved config (flat: "model.loss"), its result, and who made it where."""

    folder: Path
    config: dict[str, Any]
    result: dict[str, Any]
    provenance: list[dict[str, Any]]
    label: str = ""  # what the grid calls the estimator, where that is known
    unbiased: bool = True
    objective: str = "elbo"

    @property
    def architecture(self) -> str:
        """As the paper writes it, deepest first: 32-64-128-256."""
        return "-".join(str(size) for size in reversed(self.config["model.layers"]))

    @property
    def estimator(self) -> str:
        """Either lr or crn; what the grid calls another, or its class name."""
        if self.label:
            return self.label
        name = self.config["model.estimator.class_path"].rsplit(".", 1)[-1]
        return ESTIMATORS.get(name, name)

    @property
    def seed(self) -> int:
        """Of everything."""
        return int(self.config["seed_everything"])

    @property
    def steps(self) -> int:
        """That it was trained."""
        return int(self.config["trainer.max_steps"])

    @property
    def budget(self) -> str:
        """Name of the budget with this many steps."""
        return BUDGETS.get(self.steps, f"{self.steps:,} steps")


@dataclass(frozen=True)
class Manifest:
    """What reproduce.sh made, and what it could not."""

    command: str
    seconds: float | None  # of wall-clock time; none if other commands made some of the runs
    runs: list[Run]
    missing: dict[str, str]


def read_manifest(results: Path, name: str = "runs.json") -> Manifest:
    """Read runs.json, or another like it; ValueError, with a sentence, if it is damaged or not there."""
    path = results / name
    try:
        content = json.loads(path.read_bytes())
        runs = [
            Run(
                results / each["folder"],
                each["config"],
                each["result"],
                each["provenance"],
                each.get("estimator", ""),
                each.get("unbiased", True),
                each.get("objective", "elbo"),
            )
            for each in content["runs"]
        ]
        for run in runs:
            _ = run.architecture, run.estimator, run.seed, run.steps  # every report needs them
        seconds = content["seconds"]
        return Manifest(content["command"], None if seconds is None else float(seconds), runs, content["missing"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}), expected what reproduce.sh writes; run it again"
        ) from error


def read_csv(
    path: Path, columns: tuple[str, ...], numbers: tuple[str, ...], optional: tuple[str, ...] = ()
) -> list[dict[str, str]]:
    """The rows of a CSV file with these columns; damaged ones, and the header, are left out.

    Args:
        path: the file; nothing is quoted in it.
        columns: all of them, in their order.
        numbers: those that hold finite numbers; `step`, `layer` and `seed` hold whole ones.
        optional: of these, those that may be empty.
    """
    if not path.is_file():
        return []
    lines = path.read_bytes().decode(errors="replace").splitlines()
    cells = [line.split(",") for line in lines]
    rows = [dict(zip(columns, each, strict=True)) for each in cells if len(each) == len(columns)]
    return [row for row in rows if all(_is_number(name, row[name], name in optional) for name in numbers)]


def _is_number(name: str, text: str, optional: bool) -> bool:
    if optional and not text:
        return True
    if name in WHOLE:
        return text.isascii() and text.isdecimal()
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def budget_sentence(runs: list[Run]) -> str:
    """What must stand under every table: how long was trained, and whether that is long."""
    steps = sorted({run.steps for run in runs})
    if not steps:
        return "No run is finished yet."
    what = " and ".join(f"{run_steps:,}" for run_steps in steps)
    names = " and ".join(BUDGETS[run_steps] for run_steps in steps if run_steps in BUDGETS)
    budget = f"Budget {names}: {what} steps per run" if names else f"{what} steps per run"
    if steps[0] >= AUTHORS_STEPS:
        return f"{budget}, as many as the authors' later code trains."
    return f"{budget}, which is not converged: the authors' later code trains for {AUTHORS_STEPS:,} steps."


def missing_lines(manifest: Manifest) -> list[str]:
    """A list of the runs that are not there, by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in manifest.missing.items():
        by_reason.setdefault(reason, []).append(name)
    return [f"- {', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def write(path: Path, content: str | bytes) -> Path:
    """Write a file that is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def remove(*paths: Path) -> None:
    """An artefact that cannot be made now must not be taken for one of this grid."""
    for path in paths:
        path.unlink(missing_ok=True)
