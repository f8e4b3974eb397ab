"""TensorBoard with the metrics under their own names, of which the bounds come first."""

from __future__ import annotations

from collections.abc import Mapping

from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only


class RunTensorBoard(TensorBoardLogger):
    """Lightning's logger, with one event file per process: Lightning's begins another one for the test.

    It leaves out `epoch`, which says nothing where steps are counted and would be the first card of all.

    Args:
        save_dir: the run's folder.
    """

    def __init__(self, save_dir: str = ".") -> None:
        super().__init__(save_dir, name="", version="", default_hp_metric=False)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write scalars."""
        super().log_metrics({name: value for name, value in metrics.items() if name != "epoch"}, step)

    @rank_zero_only
    def start_at(self, step: int) -> None:
        """Hide what was logged after `step`: a run continued from there logs it again."""
        self._kwargs["purge_step"] = step + 1

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write out everything, and keep the file open for what comes after training."""
        self.experiment.flush()
