"""results/runs.json, which the reports read: config, result and provenance of each run of the grid that has begun."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_modules.grid.options import ESTIMATOR_OVERLAYS
from lightning_modules.grid.plan import GridRun, RunStatus, progress_of
from lightning_modules.run.folder import read_config
from lightning_modules.run.identity import differences, settings_of
from lightning_modules.run.provenance import EARLIER, read_provenance, without_command
from lightning_modules.run.result import digest_of, read_result
from lightning_modules.shipped_estimators import read_estimator
from releg.architecture import architecture_name
from releg.files import without_infinities, write_json
from releg.records.file_names import EXTENDED_RUNS, RUNS
from releg.records.names import ARCHITECTURES, ESTIMATORS, EXTENDED_ARCHITECTURE

NOT_TRAINED = "not trained yet"  # the reason why most of the missing runs are not there
Place = tuple[str, str, int]  # of a run in the tables: architecture, estimator, seed


def write_manifests(
    results: Path,
    command: str,
    finished: Sequence[RunStatus],
    missing: Mapping[GridRun, str],
    made: Container[GridRun],
    elapsed: float,
    unfinished: Sequence[RunStatus] = (),
) -> None:
    """Write the manifest of the grid, and that of the second table if it was asked for; otherwise it stays as it is.

    What a manifest records already, of runs that were trained elsewhere, say, stays until its run is made here; how far
    an unfinished one was, until it is further here or finished.

    Args:
        results: the folder.
        command: what the user typed; the manifest names the last command that made some of its runs.
        finished: runs with a result.
        missing: the other runs that were asked for, and why they are not there.
        made: those that this command made, or went on with.
        elapsed: wall-clock seconds of this command.
        unfinished: runs that have begun, interrupted or still training; how far they are is recorded.
    """
    parts = {RUNS: _in_grid}
    if any(run.extended for run in (*missing, *(status.run for status in (*finished, *unfinished)))):
        parts[EXTENDED_RUNS] = _in_second_table
    for name, belongs in parts.items():
        there = [status for status in finished if belongs(status.run)]
        failed = {_place_of(run) for run in missing if run in made}
        entries = {_place(entry): entry for entry in _recorded(results / name) if _place(entry) not in failed}
        new = {_place_of(status.run): _entry(results, status) for status in there}
        at_once = entries.keys() <= new.keys() and all(_made_at_once(status, made) for status in there)
        entries |= new
        earlier = _read(results / name)
        here = {_place_of(each.run): _entry(results, each) for each in unfinished if belongs(each.run)}
        elsewhere = {_place(entry): entry for entry in _recorded(results / name, "unfinished")}
        begun = {place: entry for place, entry in (elsewhere | _ahead(here, elsewhere)).items() if place not in entries}
        manifest = {
            "command": command,
            "seconds": round(elapsed, 1) if at_once else None,
            "runs": _in_order(entries),
            "missing": {
                str(run): reason
                for run, reason in missing.items()
                if belongs(run) and _place_of(run) not in entries and (run in made or _place_of(run) not in begun)
            },
            **({"unfinished": _in_order(begun)} if begun else {}),
        }
        if not any(status.run in made for status in there):  # this command only re-read them
            same = earlier.get("runs") == manifest["runs"]
            manifest |= {"command": earlier.get("command"), "seconds": earlier.get("seconds") if same else None}
        write_json(results / name, manifest)


def _ahead(here: dict[Place, dict[str, Any]], elsewhere: dict[Place, dict[str, Any]]) -> dict[Place, dict[str, Any]]:
    """The unfinished runs here, without those that were trained further elsewhere, with the same settings."""

    def is_behind(entry: dict[str, Any], other: dict[str, Any]) -> bool:
        return entry["result"]["steps"] < other["result"]["steps"] and not differences(entry["config"], other["config"])

    return {
        place: entry
        for place, entry in here.items()
        if place not in elsewhere or not is_behind(entry, elsewhere[place])
    }


def _in_order(entries: Mapping[Place, dict[str, Any]]) -> list[dict[str, Any]]:
    """The paper's estimators first, then seed by seed, in the order of the tables: not in that of their ends."""

    def order(place: Place) -> tuple[bool, int, int, str]:
        architecture, estimator, seed = place
        row = ARCHITECTURES.index(architecture) if architecture in ARCHITECTURES else len(ARCHITECTURES)
        column = str([*ESTIMATORS].index(estimator)) if estimator in ESTIMATORS else estimator
        return estimator not in ESTIMATORS, seed, row, column

    return [entries[place] for place in sorted(entries, key=order)]


def check_manifests(results: Path) -> None:
    """ValueError if a manifest is not as it was written: what it records would get lost when it is written again."""
    for name in (RUNS, EXTENDED_RUNS):
        for part in ("runs", "unfinished"):
            _recorded(results / name, part)


def kept(results: Path, found: Sequence[RunStatus]) -> list[RunStatus]:
    """The same runs; one that is not finished here but recorded in the manifest counts as finished.

    ValueError if the manifest is not as it was written: its numbers would be believed.
    """
    entries = [entry for name in (RUNS, EXTENDED_RUNS) for entry in _recorded(results / name)]
    return [each if each.result is not None else _as_recorded(each, entries) for each in found]


def _recorded(path: Path, part: str = "runs") -> list[dict[str, Any]]:
    """All entries of a part of a manifest, each of which has to fit its digest; none if there is no file.

    An entry that was written before there were digests gets one now.
    """
    if not path.is_file():
        return []
    entries = _read(path).get(part, [] if part == "unfinished" else None)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path} is damaged, expected a list of runs; restore it, or delete it to train all runs")
    for entry in entries:
        digest = digest_of({key: value for key, value in entry.items() if key != "digest"})
        if entry.setdefault("digest", digest) != digest:
            raise ValueError(
                f"{path} does not have {entry.get('folder', 'a run')} as it was written, expected an entry that fits "
                "its digest; restore the file, or delete the entry to train the run again"
            )
    return entries


def is_here(results: Path, entry: Mapping[str, Any]) -> bool:
    """Whether the folder of a recorded run is here, finished: not elsewhere, with another run in its place."""
    try:
        return read_result(results / entry["folder"]) == entry["result"]
    except ValueError:  # damaged
        return False


def cell_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """The cell of the table that a run belongs to: architecture and estimator."""
    return architecture_name(entry["config"]["model.layers"]), entry["estimator"]


def _place(entry: Mapping[str, Any]) -> Place:
    return (*cell_of(entry), int(entry["config"]["seed_everything"]))


def _place_of(run: GridRun) -> Place:
    return run.architecture, run.estimator, run.seed


def _as_recorded(status: RunStatus, entries: Sequence[dict[str, Any]]) -> RunStatus:
    """The run with the result of the entry that has its settings, if there is one."""
    settings = settings_of(status.config)
    for entry in entries:
        if entry["estimator"] == status.run.estimator and not differences(entry["config"], settings):
            return replace(status, result=entry["result"], recorded=entry)
    return status


def _in_grid(run: GridRun) -> bool:
    return not run.extended


def _in_second_table(run: GridRun) -> bool:
    """The second table shows LR and CRN too."""
    return run.extended or run.architecture == EXTENDED_ARCHITECTURE


def _made_at_once(status: RunStatus, made: Container[GridRun]) -> bool:
    """Whether this command made the whole run: every process leaves one entry."""
    entries = _provenance(status.folder)
    return status.run in made and len(entries) == 1 and EARLIER not in entries[0]


def _read(path: Path) -> dict[str, Any]:
    """The present manifest; empty if there is none or it cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _entry(results: Path, status: RunStatus) -> dict[str, Any]:
    if status.recorded is not None:
        return status.recorded
    entry = {
        "folder": str(status.folder.relative_to(results)),
        "estimator": status.run.estimator,
        **_nature(Path(ESTIMATOR_OVERLAYS.get(status.run.estimator, status.run.estimator)).stem),
        "config": settings_of(read_config(status.folder)),
        "result": status.result or progress_of(status.folder),
        "provenance": _provenance(status.folder),
    }
    return {**entry, "digest": digest_of(without_infinities(entry))}


def _nature(name: str) -> dict[str, Any]:
    """What a table must say of an estimator."""
    estimator = read_estimator(name)
    return {"unbiased": estimator.unbiased, "objective": estimator.objective}


def _provenance(folder: Path) -> list[dict[str, Any]]:
    """One entry per process that worked on the run; without command lines, which are full of this machine's paths."""
    return [without_command(entry) for entry in read_provenance(folder)]
