"""The csv files of a run's folder: metrics.csv, every logged number, and grad_variance.csv, every measured variance."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from releg.files import write_atomically
from releg.measure.moments import GradientVariances
from releg.records.csv_formats import METRICS_COLUMNS, VARIANCE_COLUMNS, csv_text, read_metrics, read_variances
from releg.records.file_names import METRICS


class MetricsCSV(Logger):
    """metrics.csv: one row per number, with its step and the seconds of training until then.

    Lightning's CSVLogger has one row per step, and deletes the old file when a run continues.

    Args:
        save_dir: the run's folder.
    """

    def __init__(self, save_dir: str | Path = ".") -> None:
        super().__init__()
        self.path = Path(save_dir) / METRICS
        self.seconds: Callable[[], float] = lambda: 0.0  # of training; TrainingClock puts its own there
        self._continued_at: int | None = None

    @property
    def name(self) -> str:
        """Empty: Lightning asks for a name, which nothing here needs."""
        return ""

    @property
    def version(self) -> str:
        """Empty: each run has its own folder."""
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the run's config.yaml has them."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one row per number. It replaces a row logged just before the run was interrupted."""
        numbers = {name: value for name, value in metrics.items() if name not in ("epoch", "step")}
        if step is not None and step == self._continued_at:
            self._keep(lambda row: int(row["step"]) != step or row["metric"] not in numbers)
        rows = [(step, f"{self.seconds():.3f}", name, value) for name, value in numbers.items()]
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerows([METRICS_COLUMNS, *rows] if file.tell() == 0 else rows)

    @rank_zero_only
    def start_at(self, step: int) -> None:
        """Forget what was logged after `step`: a run continued from there logs it again."""
        self._continued_at = step
        self._keep(lambda row: int(row["step"]) <= step)

    def _keep(self, wanted: Callable[[dict[str, str]], bool]) -> None:
        """Write the wanted rows only."""
        kept = [[*row.values()] for row in read_metrics(self.path) if wanted(row)]
        write_atomically(self.path, csv_text(METRICS_COLUMNS, kept))


def variance_rows(step: int, results: Mapping[str, GradientVariances]) -> list[tuple[Any, ...]]:
    """Rows of a grad_variance.csv: one per estimator, layer (1 is next to x) and kind."""
    return [
        (step, name, layer, kind, number.value, number.standard_error, result.num_images, result.samples_per_image)
        for name, result in results.items()
        for layer, numbers in enumerate(result.layers, start=1)
        for kind, number in numbers.items()
    ]


def replace_variances(file: Path, step: int, results: Mapping[str, GradientVariances]) -> None:
    """Replace a step's rows. The file is whole at any moment."""
    kept = [tuple(row.values()) for row in read_variances(file) if row["step"] != str(step)]
    rows = sorted([*kept, *variance_rows(step, results)], key=lambda row: int(row[0]))
    write_atomically(file, csv_text(VARIANCE_COLUMNS, rows))
