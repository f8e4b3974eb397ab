"""TensorBoard as people read it: bounds first, then gradient variances, then images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytorch_lightning.loggers import TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter

from releg.naming.names import ESTIMATORS

# TensorBoard sorts its cards by name: "bound" comes before "grad_variance" and "images"
BOUNDS = {
    "train/elbo": "bound/train",
    "val/elbo": "bound/val",
    "test/elbo": "bound/test",
    "test/multi_sample_bound": "bound/test_multi_sample",
}
IMAGES = "images"
# Under CUSTOM SCALARS: the variances of all layers in one chart, for each of both estimators, whose scales differ
LAYOUT = {
    "gradient variance, all layers": {
        f"{kind}, {whose}": ["Multiline", [rf"grad_variance/{prefix}{kind}/layer\d+"]]
        for kind in ("total", "within", "exact_within")
        for whose, prefix in (("the run's estimator", ""), ("CRN at the same weights", "crn/"))
        if (kind, prefix) != ("exact_within", "crn/")
    }
}


class RunTensorBoard(TensorBoardLogger):
    """Lightning's logger, with names that are sorted and short, and no scalar that only repeats the step."""

    @property
    def experiment(self) -> SummaryWriter:
        """The writer; the first time it also writes the layout."""
        is_new = self._experiment is None
        writer: SummaryWriter = super().experiment
        if is_new and isinstance(writer, SummaryWriter):  # ranks other than 0 have a dummy
            writer.add_custom_scalars(LAYOUT)
        return writer

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write scalars under TensorBoard's names."""
        super().log_metrics(renamed(metrics), step)

    def log_hyperparams(self, params: Any, metrics: Mapping[str, float] | None = None, step: int | None = None) -> None:
        """Write settings and what they led to, under the same names and at the step of the metrics."""
        reached = metrics or {}
        super().log_hyperparams(params, renamed(reached), int(reached.get("step", 0)) if step is None else step)


def renamed(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics by their names in TensorBoard."""
    return {_short(BOUNDS.get(name, name)): value for name, value in metrics.items() if name not in ("step", "epoch")}


def _short(name: str) -> str:
    """grad_variance/common_random_numbers/total/layer1 -> grad_variance/crn/total/layer1."""
    for short, estimator in ESTIMATORS.items():
        name = name.replace(f"/{estimator.config}/", f"/{short}/")
    return name
