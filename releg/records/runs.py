"""runs.json: one entry per finished run, with its settings, its result and what made it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from releg.architecture import architecture_name
from releg.files import readable, without_infinities, write_json
from releg.records.file_names import RESULT, RUNS
from releg.records.names import PAPER_DATA, data_name, schedule_name

DAMAGED = "restore the file with git, or delete it to train all runs again"


@dataclass(frozen=True)
class Entry:
    """A finished run. Its config is flat: "model.loss"; its provenance has an entry per process that worked on it."""

    folder: Path
    config: dict[str, Any]
    result: dict[str, Any]
    provenance: list[dict[str, Any]]
    estimator: str  # lr or crn

    @property
    def data(self) -> str:
        """The data set. Configs saved before there was a choice do not name it: they are the paper's."""
        return data_name(self.config.get("data.class_path", PAPER_DATA))

    @property
    def architecture(self) -> str:
        """As the paper writes it: 32-64-128-256."""
        return architecture_name(self.config["model.layers"])

    @property
    def net(self) -> str:
        """The architecture, and the data set unless it is the paper's."""
        return self.architecture if self.data == PAPER_DATA else f"{self.architecture}, {self.data}"

    @property
    def cell(self) -> tuple[str, str]:
        """The cell of a table that it belongs to."""
        return self.net, self.estimator

    @property
    def seed(self) -> int:
        """The seed of everything."""
        return int(self.config["seed_everything"])

    @property
    def steps(self) -> int:
        """The number of training steps."""
        return int(self.config["trainer.max_steps"])

    @property
    def recipe(self) -> str:
        """The optimiser with its rate, the peak of a schedule: RMSprop 0.003, hold then linear, warm-up 10,000."""
        optimizer = self.config.get("model.optimizer.class_path", "RMSprop").rsplit(".", 1)[-1]
        rate = self.config.get("model.optimizer.init_args.lr", 0.001)
        schedule = schedule_name(self.config.get("model.lr_scheduler.class_path", "")).replace("_", " ")
        warmup = self.config.get("model.lr_scheduler.init_args.warmup_steps", 0)
        return f"{optimizer} {rate:g}, {schedule}" + (f", warm-up {warmup:,}" if warmup else "")

    @property
    def trained(self) -> str:
        """A digest that tells a run from one that was trained again, even if its config gets settings with defaults."""
        return digest([self.config["seed_everything"], self.result])

    @property
    def is_here(self) -> bool:
        """Whether its folder is on this machine, and holds this run and not another one in its place."""
        try:
            found = json.loads((self.folder / RESULT).read_bytes())
            return all(found[key] == value for key, value in self.result.items())
        except (OSError, ValueError, LookupError, TypeError):
            return False


def commit(process: Mapping[str, Any]) -> str:
    """The commit of an entry of provenance."""
    name = process.get("commit") or "unknown"
    return f"{name} with uncommitted changes" if process.get("uncommitted_changes") else str(name)


def commits(provenance: Iterable[Mapping[str, Any]]) -> str:
    """The commits of all processes that worked on a run."""
    return "; ".join(dict.fromkeys(map(commit, provenance))) or commit({})


def digest(content: object) -> str:
    """A digest of what a JSON file holds."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def read_runs(results: Path) -> list[Entry]:
    """The entries of runs.json; ValueError, with a sentence, if it is missing, damaged, or not as it was written."""
    with readable(results / RUNS, "what reproduce.sh writes", DAMAGED):
        return [_entry(results, recorded) for recorded in json.loads((results / RUNS).read_bytes())["runs"]]


def read_missing(results: Path) -> dict[str, str]:
    """The runs that were asked for and are not finished, and why; empty if there are none."""
    with readable(results / RUNS, "what reproduce.sh writes", DAMAGED):
        return dict(json.loads((results / RUNS).read_bytes()).get("missing", {}))


def write_runs(results: Path, entries: Iterable[Entry], missing: Mapping[str, str]) -> None:
    """Write runs.json; every entry has a digest, so that a changed number is noticed."""
    runs = [_recorded(results, entry) for entry in entries]
    write_json(results / RUNS, {"runs": runs, "missing": dict(missing)})


def _recorded(results: Path, entry: Entry) -> dict[str, Any]:
    content = without_infinities({**vars(entry), "folder": os.path.relpath(entry.folder, results)})
    return {**content, "digest": digest(content)}


def _entry(results: Path, recorded: dict[str, Any]) -> Entry:
    content = {key: value for key, value in recorded.items() if key != "digest"}
    if recorded.get("digest", "") not in ("", digest(content)):
        raise ValueError(f"the entry of {content.get('folder', 'a run')} does not fit its digest")
    known = {name: content[name] for name in ("config", "result", "provenance", "estimator")}
    entry = Entry(results / content["folder"], **known)
    _ = entry.net, entry.seed, entry.steps, entry.result["test/elbo"]  # every page needs them
    return entry
