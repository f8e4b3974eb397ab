"""The grid of Table 1: its runs and the state of each on disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_modules import CONFIGS
from lightning_modules.grid.options import ARCHITECTURE_OVERLAYS, ESTIMATOR_OVERLAYS, EXTENDED, OTHER_ARCHITECTURES
from lightning_modules.run.csv_files import read_metrics
from lightning_modules.run.folder import find_run_folder
from lightning_modules.run.result import read_result
from lightning_modules.run.settings import Settings
from releg.records.file_names import METRICS
from releg.records.names import EXTENDED_ARCHITECTURE, FIGURE1_ARCHITECTURE


@dataclass(frozen=True)
class GridRun:
    """One run, and the arguments of the fit command that makes it."""

    architecture: str
    estimator: str
    seed: int
    arguments: tuple[str, ...]
    extended: bool = False  # whether it belongs to the second table

    def __str__(self) -> str:
        return f"SBN({self.architecture}) {self.estimator} seed {self.seed}"


@dataclass(frozen=True)
class RunStatus:
    """A run with its config and its folder, and its result if it is finished."""

    run: GridRun
    config: dict[str, Any]
    folder: Path
    result: dict[str, Any] | None
    steps_done: int  # about where an interrupted run will continue
    recorded: dict[str, Any] | None = None  # its entry of runs.json, if it was trained elsewhere and is kept

    @property
    def steps(self) -> int:
        """Its number of training steps."""
        return int(self.config["trainer"]["max_steps"])


def plan(
    budget: Path, seeds: int, results: Path, architectures: Iterable[str] = ARCHITECTURE_OVERLAYS
) -> list[GridRun]:
    """All runs of the grid, seed by seed, so that a first complete table is ready early.

    The overlay that measures gradient variances has the budget's file name, in the folder measure/ next to budget/.
    """
    measure = budget.parent.parent / "measure" / budget.name
    runs = []
    for seed in range(seeds):
        for architecture in architectures:
            measured = [measure] if architecture == FIGURE1_ARCHITECTURE and measure.is_file() else []
            for estimator, file in ESTIMATOR_OVERLAYS.items():
                arguments = _arguments(architecture, file, [budget, *measured], seed, results)
                runs.append(GridRun(architecture, estimator, seed, arguments))
    return runs


def plan_extended(budget: Path, seeds: int, results: Path) -> list[GridRun]:
    """One run per other estimator and seed, for the second table."""
    where = EXTENDED_ARCHITECTURE
    return [
        GridRun(where, name, seed, _arguments(where, f"{name}.yaml", [budget], seed, results), extended=True)
        for seed in range(seeds)
        for name in EXTENDED
    ]


def _arguments(architecture: str, estimator: str, more: list[Path], seed: int, results: Path) -> tuple[str, ...]:
    words = config_words(architecture, estimator, *more)
    return (*words, "--seed_everything", str(seed), "--results_dir", str(results))


def config_words(architecture: str, estimator: str, *more: Path | str) -> list[str]:
    """The arguments that give a run its configs; relative paths are in the folder of the shipped ones.

    Args:
        architecture: as the paper writes it.
        estimator: the file of its config.
        more: further configs, which come last.
    """
    net = (ARCHITECTURE_OVERLAYS | OTHER_ARCHITECTURES)[architecture]
    configs = ["base.yaml", f"architecture/{net}", f"estimator/{estimator}", *more]
    return [word for config in configs for word in ("--config", str(CONFIGS / config))]


def status_of(run: GridRun) -> RunStatus:
    """The folder of a run and whether it is finished; ValueError if the folder is damaged."""
    return find(run, Settings("fit", list(run.arguments)))


def find(run: GridRun, settings: Settings) -> RunStatus:
    """The same for a run whose settings are known: parsing the arguments takes a third of a second."""
    folder = find_run_folder(settings)
    return RunStatus(run, settings.config, folder, read_result(folder), _steps_done(folder))


def _steps_done(folder: Path) -> int:
    """The step of the last validation, which has a checkpoint."""
    return max((int(row["step"]) for row in _validations(folder)), default=0)


def progress_of(folder: Path) -> dict[str, Any]:
    """What a run that has begun knows of its result: its last validation, and the best so far."""
    rows = _validations(folder)
    best = max(rows, key=lambda row: float(row["value"]))
    return {
        "steps": _steps_done(folder),
        "best_step": int(best["step"]),
        "training_seconds": max(float(row["seconds"]) for row in rows),
        "val/elbo": float(best["value"]),
    }


def _validations(folder: Path) -> list[dict[str, str]]:
    rows = read_metrics(folder / METRICS) if (folder / METRICS).is_file() else []
    return [row for row in rows if row["metric"] == "val/elbo"]
