"""Curves of runs: from the files of the runs that are here, and from a page's own CSV file for runs elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from releg.files import readable, write_atomically
from releg.records.csv_formats import csv_text, read_csv, read_metrics, read_variances
from releg.records.file_names import MEASUREMENTS, METRICS, VARIANCES
from releg.records.names import ESTIMATORS
from releg.records.runs import Entry

MEASURED = {known.config: name for name, known in ESTIMATORS.items()}  # by their names in grad_variance.csv
MEASURED_RUN = "run"  # in what made a measurement: which run's weights, as Entry.trained


class Bound(NamedTuple):
    """A validation bound of a run, and the seconds of training that it took."""

    estimator: str
    seed: int
    step: int
    seconds: float
    value: float  # val/elbo


class Variance(NamedTuple):
    """The gradient variance of `estimator` in a layer, at the weights of a run of `trained_with`; layer 1 is next to x.

    The kind is within, between, total, exact_within or optimal_within.
    """

    trained_with: str
    seed: int
    step: int
    estimator: str
    layer: int
    kind: str
    value: float
    standard_error: float
    num_images: int
    samples_per_image: int


Point = TypeVar("Point", Bound, Variance)


def bounds_of(runs: Sequence[Entry], path: Path) -> list[Bound]:
    """The validation bounds of these runs. The CSV file has them for runs elsewhere, and is written again with all."""
    return _gathered(runs, path, Bound, _validations)


def variances_of(runs: Sequence[Entry], path: Path) -> list[Variance]:
    """The gradient variances that these runs measured during training; the CSV file has them for runs elsewhere."""
    return _gathered(runs, path, Variance, lambda run: _variances(run, run.folder / VARIANCES))


def measured_at_the_end(runs: Sequence[Entry], results: Path) -> list[Variance]:
    """What `releg variance` measured at the best weights of one of these runs; none if that run was trained again."""
    points = []
    for name in ESTIMATORS:
        path = measurement_file(results, name)
        points += [point for run in runs if run.trained == measured_run(path) for point in _variances(run, path)]
    return points


def measurement_file(results: Path, trained_with: str) -> Path:
    """The variances at the end of a run of Figure 1's net; what made them is in the .json beside it."""
    return results / MEASUREMENTS / f"{trained_with}.csv"


def read_measured(path: Path) -> dict[str, Any]:
    """What the .json beside a measurement says: commit, machine and run; empty if there is none."""
    path = path.with_suffix(".json")
    if not path.is_file():
        return {}
    with readable(path, "what releg variance writes", "measure again, or restore it with git"):
        return dict(json.loads(path.read_bytes()))


def measured_run(path: Path) -> str:
    """The run whose weights a measurement was made at, as Entry.trained; empty if no file says so."""
    return str(read_measured(path).get(MEASURED_RUN, ""))


def _gathered(
    runs: Sequence[Entry], path: Path, kind: type[Point], points_of: Callable[[Entry], Iterable[Point]]
) -> list[Point]:
    elsewhere = {(run.estimator, run.seed) for run in runs if not run.is_here}
    kept = [_parse(kind, row) for row in read_csv(path, kind._fields)]
    points = [point for run in runs if run.is_here for point in points_of(run)]
    points = sorted([point for point in kept if point[:2] in elsewhere] + points, key=lambda point: point[:3])
    if points:
        write_atomically(path, csv_text(kind._fields, points))
    return points


def _parse(kind: type[Point], row: dict[str, str]) -> Point:
    return kind(**{name: parse(row[name]) for name, parse in get_type_hints(kind).items()})


def _validations(run: Entry) -> list[Bound]:
    rows = [row for row in read_metrics(run.folder / METRICS) if row["metric"] == "val/elbo"]
    return [_parse(Bound, row | {"estimator": run.estimator, "seed": str(run.seed)}) for row in rows]


def _variances(run: Entry, path: Path) -> list[Variance]:
    rows = [row for row in read_variances(path) if row["estimator"] in MEASURED]
    owner = {"trained_with": run.estimator, "seed": str(run.seed)}
    return [_parse(Variance, row | owner | {"estimator": MEASURED[row["estimator"]]}) for row in rows]
