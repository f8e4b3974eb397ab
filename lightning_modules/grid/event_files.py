"""A small TensorBoard file for each published run: `tensorboard --logdir results` has its curves in a fresh clone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from releg.files import replacing
from releg.records.csv_formats import read_metrics
from releg.records.file_names import CURVES, METRICS
from releg.records.runs import Entry

NAME = "events.out.tfevents.published"  # TensorBoard looks for such names
MOST_POINTS = 100  # of a curve

Row = dict[str, str]  # of metrics.csv


def write_event_files(results: Path, entries: Iterable[Entry]) -> None:
    """Write the files of those runs that are here; other runs keep theirs, and no run leaves one when it goes."""
    files = {results / CURVES / entry.net / entry.estimator / f"seed{entry.seed}" / NAME: entry for entry in entries}
    for path, entry in files.items():
        if entry.is_here:
            write_event_file(path, read_metrics(entry.folder / METRICS))
    for path in (results / CURVES).rglob(NAME):
        if path not in files:
            path.unlink()


def write_event_file(path: Path, rows: Sequence[Row]) -> None:
    """All metrics, thinned. The time of a point is that of training until then."""
    by_metric = groupby(sorted(rows, key=lambda row: row["metric"]), key=lambda row: row["metric"])
    with replacing(path) as file:
        writer = RecordWriter(file)
        writer.write(Event(file_version="brain.Event:2").SerializeToString())
        for _, curve in by_metric:
            for row in _thinned(sorted(curve, key=lambda row: int(row["step"]))):
                value = Summary.Value(tag=row["metric"], simple_value=float(row["value"]))
                event = Event(wall_time=float(row["seconds"]), step=int(row["step"]), summary=Summary(value=[value]))
                writer.write(event.SerializeToString())


def _thinned(curve: list[Row]) -> list[Row]:
    """At most MOST_POINTS of them, the first and the last included."""
    places = np.linspace(0, len(curve) - 1, min(len(curve), MOST_POINTS)).round().astype(int)
    return [curve[place] for place in places]
