"""runs.json of a grid: an entry for each run that is finished here, and the reasons why others are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_modules.grid.plan import GridRun, RunStatus
from lightning_modules.run.folder import read_config
from lightning_modules.run.identity import NO_PART_OF_IDENTITY, differences, settings_of
from lightning_modules.run.provenance import read_provenance, without_command
from releg.records.file_names import RUNS
from releg.records.names import ARCHITECTURES, ESTIMATORS
from releg.records.runs import Entry, read_runs, write_runs


def entry_of(status: RunStatus) -> Entry:
    """What is recorded of a finished run; without command lines, which are full of this machine's paths."""
    assert status.result is not None
    provenance = [without_command(process) for process in read_provenance(status.folder)]
    config = {name: value for name, value in settings_of(read_config(status.folder)).items() if value is not None}
    return Entry(status.folder, config, status.result, provenance, status.run.estimator)


def recorded(results: Path) -> list[Entry]:
    """What runs.json has; nothing if there is none, ValueError if it is not as it was written."""
    return read_runs(results) if (results / RUNS).is_file() else []


def write_record(results: Path, found: Iterable[RunStatus], missing: Mapping[GridRun, str]) -> None:
    """Write runs.json: these runs, and those of earlier commands whose folders are still here."""
    earlier = [entry for entry in recorded(results) if entry.is_here]
    entries = merged(earlier, [entry_of(status) for status in found if status.result is not None])
    write_runs(results, entries, {str(run): reason for run, reason in missing.items()})


def merged(earlier: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    """All entries in the order of the table, seed by seed.

    Of a cell that has new ones, earlier entries of the same seed leave, and those with other settings: a cell is a mean
    over seeds and over nothing else.
    """
    settings = {entry.cell: entry.config for entry in new}
    kept = [entry for entry in earlier if entry.cell not in settings or _are_same(entry.config, settings[entry.cell])]
    entries = {(*entry.cell, entry.seed): entry for entry in (*kept, *new)}
    return sorted(entries.values(), key=_order)


def _are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether settings differ at most in the seed."""
    return not differences(one, other).keys() - {*NO_PART_OF_IDENTITY, "seed_everything"}


def _order(entry: Entry) -> tuple[int, int, str, int]:
    net, names = entry.net, [*ESTIMATORS]
    row = ARCHITECTURES.index(net) if net in ARCHITECTURES else len(ARCHITECTURES)
    return entry.seed, row, net, names.index(entry.estimator) if entry.estimator in names else len(names)
