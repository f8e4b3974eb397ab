"""TensorBoard as people read it: bounds first, then gradient variances, then images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pytorch_lightning.loggers import TensorBoardLogger

from releg.records.names import ESTIMATORS

# TensorBoard sorts its cards by name: "bound" comes before "grad_variance" and "images"
BOUNDS = {
    "train/elbo": "bound/train",
    "val/elbo": "bound/val",
    "test/elbo": "bound/test",
    "test/multi_sample_bound": "bound/test_multi_sample",
}
IMAGES = "images"
VARIANCE = re.compile(r"grad_variance/(?:(?P<estimator>.+)/)?(?P<kind>\w+)/layer\d+")
CHARTED = ("total", "within", "exact_within")  # the kinds of variance that are shown; grad_variance.csv has all
CUSTOM_SCALARS = "gradient variance, all layers"  # the title above the charts
Charts = dict[str, list[Any]]  # by title, as add_custom_scalars takes them


class RunTensorBoard(TensorBoardLogger):
    """Lightning's logger, with names that are sorted and short, and no scalar that only repeats the step.

    Under CUSTOM SCALARS it has charts of the gradient variances that the run measures, and of no others.
    """

    _charts: Charts | None = None  # that were written

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write scalars under TensorBoard's names, and the charts that they are the first for."""
        shown = renamed(metrics)
        super().log_metrics(shown, step)
        written = self._charts or {}
        charts = written | charts_of(shown)
        if charts != written:
            self._charts = charts
            self.experiment.add_custom_scalars({CUSTOM_SCALARS: charts})  # TensorBoard reads the last one

    def log_hyperparams(self, params: Any, metrics: Mapping[str, float] | None = None, step: int | None = None) -> None:
        """Write settings and what they led to, under the same names and at the step of the metrics."""
        reached = metrics or {}
        super().log_hyperparams(params, renamed(reached), int(reached.get("step", 0)) if step is None else step)


def renamed(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics by their names in TensorBoard, without those that it does not show."""
    names = {_short(BOUNDS.get(name, name)): value for name, value in metrics.items() if name not in ("step", "epoch")}
    return {name: value for name, value in names.items() if _is_shown(name)}


def charts_of(names: Iterable[str]) -> Charts:
    """One chart with all layers for each kind of variance and each estimator: their scales differ."""
    found = [(match["kind"], match["estimator"]) for name in names if (match := VARIANCE.fullmatch(name))]
    in_order = sorted(dict.fromkeys(found), key=lambda each: CHARTED.index(each[0]))
    return {f"{kind}, {_whose(estimator)}": ["Multiline", [_tags(kind, estimator)]] for kind, estimator in in_order}


def _whose(estimator: str | None) -> str:
    if estimator is None:
        return "the run's estimator"
    label = ESTIMATORS[estimator].label if estimator in ESTIMATORS else estimator
    return f"{label} at the same weights"


def _tags(kind: str, estimator: str | None) -> str:
    """The pattern of the tags of all layers."""
    prefix = "" if estimator is None else f"{re.escape(estimator)}/"
    return rf"grad_variance/{prefix}{kind}/layer\d+"


def _is_shown(name: str) -> bool:
    variance = VARIANCE.fullmatch(name)
    return variance is None or variance["kind"] in CHARTED


def _short(name: str) -> str:
    """grad_variance/common_random_numbers/total/layer1 -> grad_variance/crn/total/layer1."""
    for short, estimator in ESTIMATORS.items():
        name = name.replace(f"/{estimator.config}/", f"/{short}/")
    return name
