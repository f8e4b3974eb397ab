"""results/README.md: how each file in results/ was made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from releg.files import write_atomically
from releg.records.file_names import (
    EXTENDED_RUNS,
    LIBRARY_FIGURE,
    LIBRARY_TIMES,
    LIBRARY_TRAINING,
    PAPER,
    RUNS,
    TABLE1,
    TEST_BITS,
    WEIGHTS,
)
from releg.records.names import BUDGETS, DEFAULT_BUDGET, LONGEST_BUDGETS, label_of
from releg.report.commands import command_words
from releg.report.runs import (
    Manifest,
    Run,
    budget_sentence,
    commit_words,
    machine,
    missing_lines,
    read_manifest,
    training_minutes,
    unfinished_lines,
)
from releg.report.writers import REPORTS

# Files that no report writes: those that come first, and those that come last
READ = {
    PAPER: "the paper's Table 1, with its source; written by hand",
    RUNS: "every run behind these files: settings, seed, commit, machine, result",
}
FROM_ELSEWHERE = {
    TEST_BITS: "the bounds of the published models on other draws of the test bits, written by "
    "`python -m lightning_modules.studies.other_test_bits`",
    LIBRARY_FIGURE: f"the first steps of the library's example with three gradients. From `{LIBRARY_TRAINING}`, which "
    "`python -m lightning_modules.studies.library_training` writes",
    LIBRARY_TIMES: "what a gradient of that example costs, written by "
    "`python -m lightning_modules.studies.library_times`",
}

MANIFESTS = {"Table 1 and Figure 1": RUNS, "The second table": EXTENDED_RUNS}


def write_readme(results: Path) -> Path:
    """Write the page about the files in the folder."""
    lines = ["# Results", "", "The commands named here wrote these files and overwrite them; do not edit them.", ""]
    lines += ["| file | what it is |", "|---|---|"]
    known = [READ, *(report.files for report in REPORTS), FROM_ELSEWHERE]
    files = [(name, what) for part in known for name, what in part.items() if (results / name).is_file()]
    lines += [f"| `{name}` | {what} |" for name, what in files]
    if (results / WEIGHTS).is_dir():
        lines += [f"| `{WEIGHTS}/` | the best model of each cell of Table 1; `releg verify` computes its bound again |"]
    longer = [budget for budget in LONGEST_BUDGETS if (results / budget / TABLE1).is_file()]
    lines += [f"| `{name}/` | {_of_longer_runs(results / name)} |" for name in longer]
    if (results / DEFAULT_BUDGET / TABLE1).is_file():
        what = f"table, figure, variances and race of the budget {DEFAULT_BUDGET}, {BUDGETS[DEFAULT_BUDGET]:,} steps"
        lines += [f"| `{DEFAULT_BUDGET}/` | {what} |"]
    lines += ["| `runs/` | one folder per run: config, metrics, checkpoints, log; not in git |"]
    for title, manifest in MANIFESTS.items():
        if (results / manifest).is_file():
            lines += ["", f"## {title}", "", *_how(read_manifest(results, manifest))]
    return write_atomically(results / "README.md", "\n".join(lines) + "\n")


def _of_longer_runs(folder: Path) -> str:
    """What the folder of a longer budget has."""
    steps = f"{BUDGETS[folder.name]:,} steps"
    if read_manifest(folder).runs:
        return f"table, figure and weights of cells that were trained for {steps}"
    return f"table and figure of runs of {steps} that are not finished"


def _how(manifest: Manifest) -> list[str]:
    entries = [entry for run in manifest.runs for entry in run.provenance]
    facts = {
        "command": [command_words(manifest)],
        "budget": [budget_sentence(manifest.runs)],
        "seeds": [", ".join(str(seed) for seed in sorted({run.seed for run in manifest.runs}))],
        "commit": _commits(manifest.runs),
        "machine": _each(_machine(entry) for entry in entries),
        "python": _each(str(entry.get("python", "")) for entry in entries),
        "packages": _each(_packages(entry) for entry in entries),
        "data": _each(f"SHA-256 {entry.get('data_sha256', '')}" for entry in entries),
        "runs started": _each([_span(entries)]),
        "training": [f"{training_minutes(manifest.runs):.0f} minutes of training steps, all runs together"],
        "took": [f"{manifest.seconds / 60:.1f} minutes, everything included"] if manifest.seconds else [],
    }
    lines = ["| how | |", "|---|---|", *(f"| {name} | {'; '.join(texts)} |" for name, texts in facts.items() if texts)]
    return [*lines, *missing_lines(manifest, "Missing"), *unfinished_lines(manifest)]


def _commits(runs: list[Run]) -> list[str]:
    """The distinct commits, and which runs had uncommitted changes."""
    made: dict[str, dict[str, None]] = {}
    for run in runs:
        for entry in run.provenance:
            changed = {f"{run.net} {label_of(run.estimator)} seed {run.seed}": None}
            made.setdefault(commit_words(entry), {}).update(changed if entry.get("uncommitted_changes") else {})
    return [f"{words} ({', '.join(changed)})" if changed else words for words, changed in made.items()]


def _each(texts: Iterable[str]) -> list[str]:
    """The distinct texts, in order of appearance."""
    return list(dict.fromkeys(text for text in texts if text))


def _machine(entry: dict[str, Any]) -> str:
    parts = [entry.get("system"), machine(entry), *entry.get("gpus", [])]
    return ", ".join(str(part) for part in parts if part)


def _packages(entry: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in entry.get("packages", {}).items() if version)


def _span(entries: list[dict[str, Any]]) -> str:
    times = sorted(str(entry["started"]) for entry in entries if entry.get("started"))
    return f"{times[0]} to {times[-1]}" if times else ""
