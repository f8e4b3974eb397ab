"""The second table: every shipped estimator, trained alike on one architecture."""

from __future__ import annotations

from pathlib import Path

from releg.files import write_atomically, write_json
from releg.records.file_names import EXTENDED, EXTENDED_RUNS
from releg.records.names import label_of
from releg.report.race import write_race
from releg.report.runs import (
    Manifest,
    Row,
    bound_title,
    budget_sentence,
    missing_lines,
    over_seeds,
    read_manifest,
    unfinished_lines,
)
from releg.report.tables import as_csv, plus_minus, table

COLUMNS = (
    *("architecture", "estimator", "unbiased", "objective", "budget", "steps", "seeds", "test_nll_mean", "test_nll_sd"),
    *("multi_sample_nll_mean", "samples", "best_steps", "minutes"),
)


def write_extended(results: Path) -> str:
    """Write extended.md, .csv and .json if those runs exist, and the race; return the Markdown, or an empty text."""
    if not (results / EXTENDED_RUNS).is_file():
        return ""
    manifest = read_manifest(results, EXTENDED_RUNS)
    rows = table_rows(manifest)
    text = as_markdown(rows, manifest)
    path = write_json(results / EXTENDED, rows, indent=2)
    write_atomically(path.with_suffix(".csv"), as_csv(rows))
    write_atomically(path.with_suffix(".md"), text)
    race = write_race(results, manifest)
    return f"{text}\n{race}" if race else text


def table_rows(manifest: Manifest) -> list[Row]:
    """One row per net and estimator, best bound first."""
    keys = dict.fromkeys((run.net, run.estimator) for run in manifest.runs)
    rows = [over_seeds([run for run in manifest.runs if (run.net, run.estimator) == key]) for key in keys]
    return sorted(({name: row[name] for name in COLUMNS} for row in rows), key=lambda row: float(row["test_nll_mean"]))


def as_markdown(rows: list[Row], manifest: Manifest) -> str:
    """The table and its budget."""
    nets = list(dict.fromkeys(row["architecture"] for row in rows))
    samples = rows[0]["samples"] if rows else "multi"
    title = f"**Every estimator on {' and '.join(f'SBN({net})' for net in nets) or 'one architecture'}.**"
    head = ["estimator", "test NLL", f"{samples}-sample bound", "best step", "seeds"]
    lines = [
        f"{title} {bound_title(manifest.runs)}. All runs have the same steps, optimiser and seeds, whatever a step "
        "costs; [race.md](race.md) compares them by time.",
        "",
        *table(head, [_cells(row, several=len(nets) > 1) for row in rows]),
    ]
    lines += [
        "",
        budget_sentence(manifest.runs),
        *missing_lines(manifest, "Not in this table"),
        *unfinished_lines(manifest),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Row, several: bool) -> list[str]:
    name = label_of(row["estimator"], row["unbiased"], row["objective"])
    return [
        f"{name}, SBN({row['architecture']})" if several else name,
        plus_minus(row["test_nll_mean"], row["test_nll_sd"]),
        f"{row['multi_sample_nll_mean']:.2f}",
        " ".join(f"{step:,}" for step in dict.fromkeys(row["best_steps"])),
        str(len(row["seeds"])),
    ]
