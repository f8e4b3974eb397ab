"""figure1.csv: the curves of Figure 1, gathered from the metrics.csv and grad_variance.csv of its runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from releg.records.csv_formats import WHOLE, csv_text, read_csv, read_variances
from releg.records.file_names import FIGURE1, MEASUREMENTS, VARIANCES
from releg.records.names import ESTIMATORS
from releg.report.artefacts import readable
from releg.report.runs import Manifest, Run, digest_of_run, figure1_runs, read_manifest

NUMBERS = ("seed", "step", "seconds", "layer", "value", "standard_error", "num_images", "samples_per_image")
OPTIONAL = ("seconds", "layer", "standard_error", "num_images", "samples_per_image")
MEASURED = {known.config: name for name, known in ESTIMATORS.items()}  # by their names in grad_variance.csv
MEASURED_RUN = "run"  # in what made a measurement: the digest of its run
Number = tuple[float, float]  # value, standard error


class Point(NamedTuple):
    """One number of the figure.

    trained_with is the estimator that made the weights. quantity is val_elbo, or a kind of gradient variance (within,
    between, total, exact_within, optimal_within) of `estimator` in `layer` (1 is next to x) at these weights.
    """

    quantity: str
    trained_with: str
    estimator: str
    seed: int
    step: int
    seconds: float | None  # of training
    layer: int | None
    value: float
    standard_error: float | None
    num_images: int | None  # that a variance was measured on
    samples_per_image: int | None


class Measurement(NamedTuple):
    """The variances of one step, on so many images."""

    step: int
    images: int


def all_points(results: Path) -> list[Point]:
    """The points of all runs; for runs whose folders are missing, the points in figure1.csv."""
    chosen = curves_of(read_manifest(results))
    elsewhere = {(run.estimator, run.seed) for run in chosen if not run.is_here}
    kept = [point for point in from_csv(results / FIGURE1) if (point.trained_with, point.seed) in elsewhere]
    return with_measurements([*gather(chosen), *kept], chosen, results) if chosen else []


def curves_of(manifest: Manifest) -> list[Run]:
    """The runs of Figure 1, finished or not."""
    return figure1_runs([*manifest.runs, *manifest.unfinished])


def gather(runs: list[Run]) -> list[Point]:
    """All points of the runs of Figure 1; of those that are not finished, only the bounds."""
    chosen = [run for run in figure1_runs(runs) if run.estimator in ESTIMATORS and run.is_here]
    return [point for run in chosen for point in (*_bounds(run), *(_variances(run) if run.is_finished else ()))]


def with_measurements(points: list[Point], runs: list[Run], results: Path) -> list[Point]:
    """The points, with the variances that were measured on more images at the end of a run."""
    for name in ESTIMATORS:
        path = measurement_file(results, name)
        run = measured_run(runs, path)
        if run is None:
            continue
        rows = [row for row in read_variances(path) if row["estimator"] in MEASURED]
        new = [_point(run, row, quantity=row["kind"], estimator=MEASURED[row["estimator"]]) for row in rows]
        known = {_place(point) for point in new}  # already, if they come from figure1.csv
        points = [point for point in points if _place(point) not in known] + new
    return points


def measurement_file(results: Path, trained_with: str) -> Path:
    """The variances at the end of a run of Figure 1's net, as `releg variance` writes them."""
    return results / MEASUREMENTS / f"{trained_with}.csv"


def read_measured(path: Path) -> dict[str, Any]:
    """What made such a file, from the .json beside it; empty if there is none."""
    path = path.with_suffix(".json")
    if not path.is_file():
        return {}
    with readable(path, "what releg variance writes", "measure again, or restore it with git"):
        return dict(json.loads(path.read_bytes()))


def measured_run(runs: list[Run], path: Path) -> Run | None:
    """The run whose weights were measured; None if it is not among these: it may have been trained again."""
    digest = read_measured(path).get(MEASURED_RUN)
    return next((run for run in runs if digest_of_run(run.config, run.result) == digest), None)


def _place(point: Point) -> tuple[object, ...]:
    """What was measured, and where: one number for each."""
    run = (point.trained_with, point.seed, point.step)
    return (*run, point.quantity, point.estimator, point.layer, point.num_images)


def _bounds(run: Run) -> list[Point]:
    return [_point(run, row, quantity="val_elbo", estimator=run.estimator) for row in run.validations()]


def _variances(run: Run) -> list[Point]:
    rows = [row for row in read_variances(run.folder / VARIANCES) if row["estimator"] in MEASURED]
    return [_point(run, row, quantity=row["kind"], estimator=MEASURED[row["estimator"]]) for row in rows]


def _point(run: Run, row: dict[str, str], **texts: str) -> Point:
    return parse(row | {"trained_with": run.estimator, "seed": str(run.seed)} | texts)


def parse(texts: dict[str, str]) -> Point:
    """A point from its texts."""
    return Point(**{name: _value(name, texts.get(name, "")) for name in Point._fields})


def _value(name: str, text: str) -> Any:
    """A number that does not apply is None."""
    if name not in NUMBERS:
        return text
    return None if not text else int(text) if name in WHOLE else float(text)


def as_csv(points: list[Point]) -> str:
    """The points with a header; None is an empty cell."""
    return csv_text(Point._fields, points)


def from_csv(path: Path) -> list[Point]:
    """The points of a figure1.csv."""
    return [parse(row) for row in read_csv(path, Point._fields, NUMBERS, OPTIONAL)]


def at_shared_weights(points: list[Point]) -> list[Point]:
    """The variances of both estimators at the weights of one run: an LR run, or one of CRN if LR has none yet.

    Of several seeds, that with most images; if they have the same, the first.
    """
    measured = [point for point in points if point.layer is not None]
    owner = min((p.trained_with for p in measured), key=list(ESTIMATORS).index, default="")
    mine = [point for point in measured if point.trained_with == owner]
    seed = min(((-(p.num_images or 0), p.seed) for p in mine), default=(0, 0))[1]
    return [point for point in mine if point.seed == seed]


def run_words(points: list[Point]) -> str:
    """The run whose weights these variances share."""
    return f"the {ESTIMATORS[points[0].trained_with].label} run with seed {points[0].seed}"


def layers_of(points: list[Point]) -> list[int]:
    """The layers whose variances are known."""
    return sorted({point.layer for point in points if point.layer is not None})


def measurement(point: Point) -> Measurement:
    """The one that a variance belongs to."""
    return Measurement(point.step, point.num_images or 0)


def largest(points: list[Point]) -> Measurement:
    """The last of those on most images: what the text and the tables are about."""
    return max(map(measurement, points), key=lambda each: (each.images, each.step))


def number(points: list[Point], estimator: str, kind: str, layer: int, at: Measurement) -> Number:
    """A variance at shared weights, with its standard error; NaN if it was not measured."""
    key = (estimator, kind, layer, at)
    here = [p for p in points if (p.estimator, p.quantity, p.layer, measurement(p)) == key]
    return (here[0].value, here[0].standard_error or 0.0) if here else (math.nan, math.nan)


def amount(points: list[Point]) -> str:
    """On how many images and samples the variances were measured, in words."""
    (images, samples), *more = sorted({(point.num_images or 0, point.samples_per_image or 0) for point in points})
    first = f"{samples:,} samples for each of {images:,} training images"
    others = " and ".join(f"of {i:,}" if s == samples else f"{s:,} for each of {i:,}" for i, s in more)
    last = largest(points)
    when = f" at the best validation (step {last.step:,})" if last.images > images else ""
    return f"{first}, and {others}{when}" if more else first
