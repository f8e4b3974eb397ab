"""The csv files of a run's folder: metrics.csv, every logged number, and grad_variance.csv, every measured variance."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_modules.command_line.console import say
from lightning_modules.run.step_overhead import RunCallback
from releg.files import write_atomically
from releg.measure.collected import GradientVariances
from releg.records import csv_formats
from releg.records.csv_formats import METRICS_COLUMNS, VARIANCE_COLUMNS, csv_text, read_variances
from releg.records.file_names import METRICS

ROWS = "metrics_rows"  # key of a checkpoint: how many rows were logged before its step


class MetricsCSV(Logger):
    """A Lightning logger with one row per number: step, seconds of training, metric, value.

    Args:
        folder: the run's folder.
        continues: whether the run was in this folder before, so that rows are expected there.
    """

    def __init__(self, folder: Path, continues: bool = False) -> None:
        super().__init__()
        self.path = folder / METRICS
        self._continues = continues
        self.seconds = 0.0  # kept up to date by TrainingClock
        self._continued_at: int | None = None
        self._step, self._rows_of_step, self._rows_before = 0, 0, 0  # the last step, its rows, and those before it

    @property
    def name(self) -> str:
        """None is needed."""
        return ""

    @property
    def version(self) -> str:
        """None is needed: each run has its own folder."""
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the run's config.yaml has them."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one row per number. It replaces a row logged just before the run was interrupted."""
        numbers = {name: value for name, value in metrics.items() if name not in ("epoch", "step")}
        if step is not None and step == self._continued_at:
            self._count(self._keep(lambda row: int(row["step"]) != step or row["metric"] not in numbers), step)
        elif step is not None and step != self._step:
            self._rows_before += self._rows_of_step
            self._step, self._rows_of_step = step, 0
        self._rows_of_step += len(numbers)
        rows = [(step, f"{self.seconds:.3f}", name, value) for name, value in numbers.items()]
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if file.tell() == 0:
                writer.writerow(METRICS_COLUMNS)
            writer.writerows(rows)

    @rank_zero_only
    def sync(self) -> None:
        """Sync all rows to disk, so that a checkpoint saved later never knows more steps than the file."""
        if self.path.exists():
            with self.path.open("a") as file:
                os.fsync(file.fileno())

    @rank_zero_only
    def rewind(self, step: int, rows: int = 0) -> None:
        """Forget what was logged after `step`: a run continued from there logs it again. Say how many rows are lost.

        Args:
            step: that the run has reached.
            rows: that were logged before that step.
        """
        if step == self._continued_at:
            return  # done already
        self._continued_at = step
        self._count(self._keep(lambda row: int(row["step"]) <= step), step)
        if self._continues and (lost := rows - self._rows_before) > 0:
            say(f"{self.path} lacks {lost} rows, expected {rows} of the steps before {step}; they are lost")

    def rows_before(self, step: int) -> int:
        """How many rows were logged before a step, which is the last one or comes after it."""
        return self._rows_before + (self._rows_of_step if self._step < step else 0)

    def _count(self, rows: list[dict[str, str]], step: int) -> None:
        """Start counting with these rows, none of which is of a later step."""
        self._step, self._rows_of_step = step, sum(int(row["step"]) == step for row in rows)
        self._rows_before = len(rows) - self._rows_of_step

    def _keep(self, wanted: Callable[[dict[str, str]], bool]) -> list[dict[str, str]]:
        """Write the wanted rows only; returns them."""
        if not self.path.exists():
            return []
        kept = [row for row in read_metrics(self.path) if wanted(row)]
        rows = (",".join(row[column] for column in METRICS_COLUMNS) for row in kept)
        write_atomically(self.path, "\n".join([",".join(METRICS_COLUMNS), *rows]) + "\n")
        return kept


def csv_loggers(trainer: pl.Trainer) -> list[MetricsCSV]:
    """The loggers that write a metrics.csv."""
    return [logger for logger in trainer.loggers if isinstance(logger, MetricsCSV)]


class MetricsRewinder(RunCallback):
    """Takes metrics.csv back to the checkpoint that a run continues from."""

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Drop rows after the checkpoint: the continued run logs them again, even if no step is left."""
        if trainer.state.fn == "fit":
            self._rewind(trainer, checkpoint["global_step"], checkpoint.get(ROWS, 0))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop all rows if the run starts anew because its checkpoints are lost."""
        self._rewind(trainer, trainer.global_step)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note how many rows there are, so that lost ones are noticed."""
        for logger in csv_loggers(trainer):
            checkpoint[ROWS] = logger.rows_before(trainer.global_step)

    @staticmethod
    def _rewind(trainer: pl.Trainer, step: int, rows: int = 0) -> None:
        for logger in csv_loggers(trainer):
            logger.rewind(step, rows)


def read_metrics(path: Path) -> list[dict[str, str]]:
    """All whole rows of a metrics.csv; damaged ones (a kill in mid-line, a bad disk) are left out and counted."""
    rows = csv_formats.read_metrics(path)
    lines = path.read_bytes().decode(errors="replace").splitlines()
    bad = len(lines) - lines.count(",".join(METRICS_COLUMNS)) - len(rows)
    if bad:
        say(f"{path} has {bad} damaged lines, expected whole rows; they are left out")
    return rows


def variance_rows(step: int, results: Mapping[str, GradientVariances]) -> list[dict[str, str]]:
    """Rows of a grad_variance.csv: one per estimator, layer (1 is next to x) and kind."""
    return [
        {
            "step": str(step),
            "estimator": name,
            "layer": str(layer),
            "kind": kind,
            "value": repr(number.value),
            "standard_error": repr(number.standard_error),
            "num_images": str(result.num_images),
            "samples_per_image": str(result.samples_per_image),
        }
        for name, result in results.items()
        for layer, numbers in enumerate(result.layers, start=1)
        for kind, number in numbers.items()
    ]


def replace_variances(file: Path, step: int, results: Mapping[str, GradientVariances]) -> None:
    """Replace a step's rows. The file is whole at any moment."""
    kept = [row for row in read_variances(file) if row["step"] != str(step)]
    rows = sorted([*kept, *variance_rows(step, results)], key=lambda row: int(row["step"]))
    write_atomically(file, variance_csv(rows))


def variance_csv(rows: list[dict[str, str]]) -> str:
    """Rows with their header."""
    return csv_text(VARIANCE_COLUMNS, ([row[column] for column in VARIANCE_COLUMNS] for row in rows))
