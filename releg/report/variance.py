"""variance.md: the gradient variances of LR and CRN at the same weights, per layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from releg.records.file_names import FIGURE1_VARIANCES
from releg.records.names import ESTIMATORS, FIGURE1_ARCHITECTURE, label_of
from releg.records.runs import Entry, read_runs
from releg.report.curves import Variance, measured_at_the_end, measurement_file, read_measured, variances_of
from releg.report.numbers import count, distinct, with_error
from releg.report.page import Column, made_by, markdown, remove, write_page
from releg.report.settings import settings

INTRODUCTION = """# Gradient variance, LR against CRN

Variance of the estimated gradient w.r.t. the means of the Bernoulli units of SBN({net}), averaged over the units of a
layer; layer 1 is next to x. Both estimators are measured at the weights of one run ({run}), on the same training images
and noise, {samples} samples per image, in float64. LR has the baselines that its run had learned by then. ± is the
standard error over images; that of a ratio assumes independent errors. The paper's text has ratios from 10⁵ to 10⁸.

- *Total*: the variance of all samples of all images together, within plus between images. This is how we read the
  caption of the paper's Figure 1, with its 50 million samples.
- *Within*: the variance of the samples of one image, averaged over images.
- *Exact*: LR's within-image variance with each unit's own noise integrated out. It still averages over the samples of
  the other units. `results/README.md` says why it differs from the sampled one.
"""
AT_THE_END = "## After {step:,} steps, on {images:,} images"
MEASURED = "The measurement at the end of a run, in `variance/`:"


class Measurement(NamedTuple):
    """A step of training and the number of images on which the variances were measured after it."""

    step: int
    images: int


class Number(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return "–" if math.isnan(self.value) else with_error(*self)


UNKNOWN = Number(math.nan, math.nan)
Key = tuple[str, str, int]  # estimator, kind, layer
Table = Mapping[Key, Number]  # of one measurement


def figure1_runs(results: Path) -> list[Entry]:
    """The finished runs of Figure 1's architecture, all on one data set."""
    runs = [
        run for run in read_runs(results) if run.architecture == FIGURE1_ARCHITECTURE and run.estimator in ESTIMATORS
    ]
    return [run for run in runs if run.data == runs[0].data]


def measured_variances(results: Path) -> list[Variance]:
    """All gradient variances of the runs of Figure 1's architecture."""
    runs = figure1_runs(results)
    return [*variances_of(runs, results / FIGURE1_VARIANCES), *measured_at_the_end(runs, results)]


def at_shared_weights(points: Sequence[Variance]) -> list[Variance]:
    """The variances of both estimators at the weights of one run: an LR run, or one of CRN if LR has none.

    Of several seeds, that with most images; if they have the same, the first.
    """
    owner = min((point.trained_with for point in points), key=list(ESTIMATORS).index, default="")
    own = [point for point in points if point.trained_with == owner]
    seed = min(((-point.num_images, point.seed) for point in own), default=(0, 0))[1]
    return [point for point in own if point.seed == seed]


def tables(points: Sequence[Variance]) -> dict[Measurement, Table]:
    """The variances as a table per measurement, in the order of the steps."""
    found: dict[Measurement, dict[Key, Number]] = {}
    for point in sorted(points, key=lambda point: (point.step, point.num_images)):
        table = found.setdefault(Measurement(point.step, point.num_images), {})
        table[point.estimator, point.kind, point.layer] = Number(point.value, point.standard_error)
    return dict(found)


def largest(measurements: Mapping[Measurement, Table]) -> Measurement:
    """The measurement on most images; of several, the last."""
    return max(measurements, key=lambda measurement: (measurement.images, measurement.step))


def ratio(top: Number, bottom: Number) -> Number:
    """The ratio of two numbers with independent errors."""
    if not bottom.value or math.isnan(top.value) or math.isnan(bottom.value):
        return UNKNOWN
    value = top.value / bottom.value
    relative = math.hypot(top.error / top.value if top.value else 0.0, bottom.error / bottom.value)
    return Number(value, abs(value) * relative)


def lr_to_crn(table: Table, layer: int, of_lr: str, of_crn: str) -> Number:
    """One kind of LR's variance in a layer, divided by one kind of CRN's; unknown if one of them was not measured."""
    return ratio(table.get(("lr", of_lr, layer), UNKNOWN), table.get(("crn", of_crn, layer), UNKNOWN))


def write_variance(results: Path) -> str:
    """Write variance.md; delete an old one if nothing was measured."""
    shared = at_shared_weights(measured_variances(results))
    if not shared:
        remove(results / "variance.md")
        return ""
    measurements, owner = tables(shared), shared[0]
    last = largest(measurements)
    run = f"{label_of(owner.trained_with)}, seed {owner.seed}"
    samples = distinct(count(point.samples_per_image) for point in shared)
    return write_page(
        results / "variance.md",
        INTRODUCTION.format(net=FIGURE1_ARCHITECTURE, run=run, samples=samples),
        *(AT_THE_END.format(step=last.step, images=last.images), _by_layer(measurements[last])),
        *("## During training: LR / CRN, sampled total", _ratios(measurements, "total", "total")),
        *("## During training: LR / CRN, exact within", _ratios(measurements, "exact_within", "within")),
        settings(figure1_runs(results)),
        *_how_measured(results, owner.trained_with),
    )


def _how_measured(results: Path, trained_with: str) -> list[str]:
    """What made the measurement at the end of a run of Figure 1's net, if there is one."""
    measured = read_measured(measurement_file(results, trained_with))
    return [MEASURED, made_by([measured])] if measured else []


def _by_layer(table: Table) -> str:
    def number(head: str, estimator: str, kind: str) -> Column[int]:
        return Column(head, lambda layer: str(table.get((estimator, kind, layer), UNKNOWN)))

    def quotient(head: str, of_lr: str, of_crn: str) -> Column[int]:
        return Column(f"LR / CRN, {head}", lambda layer: str(lr_to_crn(table, layer, of_lr, of_crn)))

    columns: list[Column[int]] = [
        Column("layer", str),
        number("LR, total", "lr", "total"),
        number("CRN, total", "crn", "total"),
        quotient("total", "total", "total"),
        number("LR, within", "lr", "within"),
        number("CRN, within", "crn", "within"),
        quotient("within", "within", "within"),
        number("LR, exact within", "lr", "exact_within"),
        quotient("exact within", "exact_within", "within"),
    ]
    return markdown(columns, sorted({layer for _, _, layer in table}))


def _ratios(measurements: Mapping[Measurement, Table], of_lr: str, of_crn: str) -> str:
    """LR / CRN of each layer, in a row per measurement."""

    def column(layer: int) -> Column[Measurement]:
        return Column(f"layer {layer}", lambda at: str(lr_to_crn(measurements[at], layer, of_lr, of_crn)))

    first = [Column[Measurement]("steps", lambda at: count(at.step)), Column("images", lambda at: count(at.images))]
    layers = sorted({layer for table in measurements.values() for _, _, layer in table})
    return markdown([*first, *map(column, layers)], list(measurements))
