"""results/runs.json and the runs that it names, as the reports see them."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from releg.architecture import architecture_name
from releg.records.csv_formats import read_metrics
from releg.records.file_names import METRICS, RESULT, RUNS
from releg.records.names import (
    AUTHORS_STEPS,
    BUDGETS,
    CONSTANT_RATE,
    FIGURE1_ARCHITECTURE,
    LONGEST_BUDGETS,
    PAPER_DATA,
    PUBLISHED_BUDGET,
    SCHEDULES,
    budget_name,
    data_name,
    estimator_name,
    label_of,
    schedule_name,
)
from releg.report.artefacts import readable
from releg.report.tables import table

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run: its saved config (flat: "model.loss"), its result, so far if it is not finished, and its provenance."""

    folder: Path
    config: dict[str, Any]
    result: dict[str, Any]
    provenance: list[dict[str, Any]]
    label: str = ""  # the grid's name for the estimator, if known
    unbiased: bool = True
    objective: str = "elbo"

    @property
    def architecture(self) -> str:
        """As the paper writes it: 32-64-128-256."""
        return architecture_name(self.config["model.layers"])

    @property
    def data(self) -> str:
        """The data set. Configs saved before there was a choice do not name it: they are the paper's."""
        return data_name(self.config.get("data.class_path", PAPER_DATA))

    @property
    def net(self) -> str:
        """The architecture, and the data set unless it is the paper's."""
        return self.architecture if self.data == PAPER_DATA else f"{self.architecture}, {self.data}"

    @property
    def estimator(self) -> str:
        """The grid's name (lr, crn, arm, ...), or else the class name."""
        return self.label or estimator_name(self.config["model.estimator.class_path"])

    @property
    def seed(self) -> int:
        """The seed of everything."""
        return int(self.config["seed_everything"])

    @property
    def steps(self) -> int:
        """The number of training steps."""
        return int(self.config["trainer.max_steps"])

    @property
    def rate(self) -> float:
        """The optimiser's learning rate, the peak of a schedule."""
        old = self.config.get("model.learning_rate", 0.001)  # in configs saved before the optimiser was a choice
        return float(self.config.get("model.optimizer.init_args.lr", old))

    @property
    def schedule(self) -> str:
        """How the learning rate changes: constant, linear, ..., or the class name of a schedule of the user's own."""
        return schedule_name(self.config.get("model.lr_scheduler.class_path", ""))

    @property
    def warmup(self) -> int:
        """The steps in which the learning rate warms up."""
        return int(self.config.get("model.lr_scheduler.init_args.warmup_steps", 0))

    @property
    def is_finished(self) -> bool:
        """Whether it was trained to its end and tested."""
        return "test/elbo" in self.result

    @property
    def is_here(self) -> bool:
        """Whether its folder is here: not elsewhere, with one of another run in its place."""
        if not self.is_finished:
            rows = read_metrics(self.folder / METRICS) if (self.folder / METRICS).is_file() else []
            return any(int(row["step"]) >= self.result["steps"] for row in rows if row["metric"] == "val/elbo")
        try:
            found = json.loads((self.folder / RESULT).read_bytes())
            return all(found[key] == value for key, value in self.result.items())
        except (OSError, ValueError, LookupError, TypeError):
            return False

    def validations(self) -> list[dict[str, str]]:
        """The rows of its metrics.csv with validation bounds; none if its folder is elsewhere."""
        rows = read_metrics(self.folder / METRICS) if self.is_here else []
        return [row for row in rows if row["metric"] == "val/elbo"]


@dataclass(frozen=True)
class Manifest:
    """What reproduce.sh made, and what it could not make."""

    command: str | None  # the last that made some of the runs; None if no command for the whole grid did
    seconds: float | None  # wall-clock time; None if several commands made the runs
    runs: list[Run]
    missing: dict[str, str]
    unfinished: list[Run] = field(default_factory=list)  # whose results are those of their best validation so far


def digest_of_run(config: dict[str, Any], result: dict[str, Any]) -> str:
    """What tells a run from one that was trained again; the rest of its config may get new settings with defaults."""
    content = json.dumps([config["seed_everything"], result], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def read_manifest(results: Path, name: str = RUNS) -> Manifest:
    """Read runs.json or another manifest; ValueError, with a sentence, if it is damaged or missing."""
    path = results / name
    with readable(path, "what reproduce.sh writes", "run it again"):
        content = json.loads(path.read_bytes())
        runs = [_run(results, each) for each in content["runs"]]
        unfinished = [_run(results, each) for each in content.get("unfinished", [])]
        seconds = content["seconds"]
        seconds = None if seconds is None else float(seconds)
        return Manifest(content["command"], seconds, runs, content["missing"], unfinished)


def longer_folders(results: Path) -> list[Path]:
    """Where the longer budgets have their runs, beside the published table's; they need not be there."""
    return [results / budget for budget in LONGEST_BUDGETS]


def _run(results: Path, entry: dict[str, Any]) -> Run:
    run = Run(
        results / entry["folder"],
        entry["config"],
        entry["result"],
        entry["provenance"],
        entry.get("estimator", ""),
        entry.get("unbiased", True),
        entry.get("objective", "elbo"),
    )
    _ = run.net, run.estimator, run.seed, run.steps  # every report needs them
    if not run.is_finished:
        _ = [run.result[name] for name in ("steps", "val/elbo", "training_seconds")]
    return run


def figure1_runs(runs: list[Run]) -> list[Run]:
    """The runs of Figure 1's architecture, all on one data set."""
    chosen = [run for run in runs if run.architecture == FIGURE1_ARCHITECTURE]
    return [run for run in chosen if run.data == chosen[0].data]


def over_seeds(runs: list[Run]) -> Row:
    """One table row for runs that differ only in their seeds."""
    first = runs[0]
    nll = [-run.result["test/elbo"] for run in runs]
    bound = [-run.result["test/multi_sample_bound"] for run in runs]
    return {
        "architecture": first.net,
        "estimator": first.estimator,
        "unbiased": first.unbiased,
        "objective": first.objective,
        "budget": budget_name(first.steps) or f"{first.steps:,} steps",
        "steps": first.steps,
        "seeds": sorted(run.seed for run in runs),
        "test_nll_mean": statistics.fmean(nll),
        "test_nll_sd": _sd(nll),
        "multi_sample_nll_mean": statistics.fmean(bound),
        "multi_sample_nll_sd": _sd(bound),
        "samples": first.config["model.test_samples"],
        "best_steps": [run.result["best_step"] for run in sorted(runs, key=lambda run: run.seed)],
        "threads": threads_of(runs),
        "minutes": min(run.result["training_seconds"] for run in runs) / 60,  # other work only slows a run
    }


def _sd(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def bound_title(runs: list[Run]) -> str:
    """What the numbers of a table are."""
    data = " and ".join(dict.fromkeys(run.data for run in runs)) or PAPER_DATA
    return (
        f"Variational bound of the negative log-likelihood on the {data} test images, in nats per image "
        "(lower is better)"
    )


def budget_sentence(runs: list[Run]) -> str:
    """The sentence under every table: how long the runs trained, at which learning rate, and whether that is long."""
    steps = sorted({run.steps for run in runs})
    if not steps:
        return "No run is finished yet."
    what = " and ".join(f"{run_steps:,}" for run_steps in steps)
    names = _budget_names(runs)
    budget = f"Budget {names}: {what} steps per run" if names else f"{what} steps per run"
    budget += f", {recipes(runs)}"
    if steps[0] >= AUTHORS_STEPS:
        return f"{budget}; at least as many steps as the authors' later code trains."
    if steps[0] >= BUDGETS[PUBLISHED_BUDGET] and all(run.schedule != CONSTANT_RATE for run in runs):
        return f"{budget}."  # as long as the published runs, whose bounds show what has converged
    return f"{budget}; not converged: the authors' later code trains for {AUTHORS_STEPS:,} steps."


def _budget_names(runs: list[Run]) -> str:
    """Empty if no budget has as many steps."""
    return " and ".join(filter(None, map(budget_name, sorted({run.steps for run in runs}))))


def recipes(runs: list[Run]) -> str:
    """The recipe of all runs; if there are several, the nets that each of them made, or the cells of a net."""
    of_net: dict[str, set[str]] = {}
    for run in runs:
        of_net.setdefault(run.net, set()).add(recipe(run))
    cells: dict[str, dict[str, None]] = {}
    for run in runs:
        name = run.net if len(of_net[run.net]) == 1 else f"{run.net} {label_of(run.estimator)}"
        cells.setdefault(recipe(run), {})[name] = None
    if len(cells) == 1:
        return next(iter(cells))
    return " and ".join(f"{words} ({', '.join(names)})" for words, names in cells.items())


def recipe(run: Run) -> str:
    """The learning rate and how it changes."""
    optimizer = run.config.get("model.optimizer.class_path", "RMSprop").rsplit(".", 1)[-1]
    shape = SCHEDULES[run.schedule].words if run.schedule in SCHEDULES else run.schedule
    warmup = f", with a warm-up over the first {run.warmup:,} steps" if run.warmup else ""
    return f"{optimizer} at {run.rate}, {shape}{warmup}"


def unfinished_lines(manifest: Manifest) -> list[str]:
    """How far the runs are that have not come to their end; nothing if there are none."""
    if not manifest.unfinished:
        return []
    head = ["SBN", "estimator", "seed", "steps", "of", "validation bound", "minutes"]
    body = [
        [
            run.net,
            label_of(run.estimator, run.unbiased, run.objective),
            str(run.seed),
            f"{run.result['steps']:,}",
            f"{run.steps:,}",
            f"{-run.result['val/elbo']:.2f}",
            f"{run.result['training_seconds'] / 60:.1f}",
        ]
        for run in manifest.unfinished
    ]
    names = _budget_names(manifest.unfinished)
    state = f"Budget {names}, not finished" if names else "Not finished"
    title = f"{state}: {recipes(manifest.unfinished)}. The best bound on the validation images so far:"
    return ["", title, "", *table(head, body, texts=2)]


def missing_lines(manifest: Manifest, title: str) -> list[str]:
    """A list of the missing runs, by reason; nothing if none is missing."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in manifest.missing.items():
        by_reason.setdefault(reason, []).append(name)
    lines = [f"- {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return ["", f"{title}:", "", *lines] if lines else []


def commit_words(entry: dict[str, Any]) -> str:
    """The commit of an entry of provenance."""
    commit = entry.get("commit") or "unknown"
    return f"{commit} with uncommitted changes" if entry.get("uncommitted_changes") else str(commit)


def commits(provenance: Sequence[dict[str, Any]]) -> str:
    """The commits of all processes that worked on a run."""
    return "; ".join(dict.fromkeys(map(commit_words, provenance))) or commit_words({})


def training_minutes(runs: list[Run]) -> float:
    """The sum of the runs' training clocks."""
    return sum(float(run.result["training_seconds"]) for run in runs) / 60


def threads_of(runs: list[Run]) -> list[int]:
    """How many threads the runs had, as far as that was recorded."""
    return sorted({entry["torch_threads"] for run in runs for entry in run.provenance if "torch_threads" in entry})


def on_one_thread(runs: list[Run]) -> str:
    """Words for it; empty unless all runs had one."""
    return " on one thread" if threads_of(runs) == [1] else ""


def machine(entry: dict[str, Any]) -> str:
    """Processor and cores of an entry of provenance."""
    return f"{entry.get('processor') or 'an unknown processor'}, {entry.get('cores', 'unknown')} cores"
