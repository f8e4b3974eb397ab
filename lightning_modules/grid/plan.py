"""The grid of Table 1: its runs and the state of each on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_modules import CONFIGS
from lightning_modules.cli import RelegCLI
from lightning_modules.grid.options import architecture_file
from lightning_modules.run.csv_files import read_metrics
from lightning_modules.run.folder import find_run_folder
from lightning_modules.run.result import read_result
from lightning_modules.run.settings import Settings
from releg.records.file_names import METRICS
from releg.records.names import ARCHITECTURES, ESTIMATORS


@dataclass(frozen=True)
class GridRun:
    """One run, and the arguments of the fit command that makes it."""

    architecture: str
    estimator: str
    seed: int
    arguments: tuple[str, ...]

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

    @property
    def steps(self) -> int:
        """The number of training steps."""
        return int(self.config["trainer"]["max_steps"])


def cells(only: tuple[str, str] | None) -> list[tuple[str, str]]:
    """The cells of the table that a command is about: all of the paper's, or those that --only names."""
    nets = ARCHITECTURES if only is None else only[:1]
    # CRN first, whose runs are longer: the last of several at a time would go on alone
    estimators = [only[1]] if only is not None and only[1] else [*reversed(ESTIMATORS)]
    return [(architecture, estimator) for architecture in nets for estimator in estimators]


def plan(budget: Path, seeds: int, results: Path, only: tuple[str, str] | None = None) -> list[GridRun]:
    """All runs of the grid, seed by seed, so that a first complete table is ready early."""
    runs = []
    for seed in range(seeds):
        for architecture, estimator in cells(only):
            words = config_words(architecture, estimator, budget, *_overlays(budget, architecture, estimator))
            words += ["--seed_everything", str(seed), "--results_dir", str(results)]
            runs.append(GridRun(architecture, estimator, seed, tuple(words)))
    return runs


def _overlays(budget: Path, architecture: str, estimator: str) -> list[Path]:
    """What differs by estimator and net: files of these names in the budget's folder, beside its YAML."""
    names = (estimator, architecture, f"{architecture},{estimator}")
    return [path for name in names if (path := budget.with_suffix("") / f"{name}.yaml").is_file()]


def config_words(architecture: str, estimator: str, *more: Path | str) -> list[str]:
    """The arguments that give a run its configs; relative paths are in the folder of the shipped ones.

    Args:
        architecture: as the paper writes it.
        estimator: lr, crn or the name of another one's config.
        more: further configs, which come last.
    """
    name = ESTIMATORS[estimator].config if estimator in ESTIMATORS else estimator
    configs = ["base.yaml", architecture_file(architecture), f"estimator/{name}.yaml", *more]
    return [word for config in configs for word in ("--config", str(CONFIGS / config))]


def status_of(run: GridRun) -> RunStatus:
    """The folder of a run and whether it is finished; ValueError if the folder is damaged."""
    return find(run, read_settings(run))


def read_settings(run: GridRun) -> Settings:
    """What `releg fit` makes of the arguments; nothing is built."""
    return RelegCLI("fit", list(run.arguments), only_parse=True).settings


def find(run: GridRun, settings: Settings) -> RunStatus:
    """Folder and state of a run whose settings are known: reading them takes a tenth of a second."""
    folder = find_run_folder(settings)
    return RunStatus(run, settings.config, folder, read_result(folder), _steps_done(folder))


def _steps_done(folder: Path) -> int:
    """The step of the last validation, which has a checkpoint."""
    rows = read_metrics(folder / METRICS) if (folder / METRICS).is_file() else []
    return max((int(row["step"]) for row in rows if row["metric"] == "val/elbo"), default=0)
