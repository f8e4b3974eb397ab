"""The second table: every shipped estimator, trained alike on one architecture."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from releg.report.runs import NAMES, Manifest, Run, budget_sentence, missing_lines, read_manifest, write
from releg.report.tables import as_csv, line, rule

MANIFEST = "extended_runs.json"
Row = dict[str, Any]


def write_extended(results: Path) -> str:
    """Write extended.md, .csv and .json if those runs were made; answers with the Markdown, or nothing."""
    if not (results / MANIFEST).is_file():
        return ""
    manifest = read_manifest(results, MANIFEST)
    rows = table_rows(manifest)
    text = as_markdown(rows, manifest)
    write(results / "extended.json", json.dumps(rows, indent=2) + "\n")
    write(results / "extended.csv", as_csv(rows))
    write(results / "extended.md", text)
    return text


def table_rows(manifest: Manifest) -> list[Row]:
    """One row per estimator, best bound first."""
    names = dict.fromkeys(run.estimator for run in manifest.runs)
    rows = [_row(name, [run for run in manifest.runs if run.estimator == name]) for name in names]
    return sorted(rows, key=lambda row: float(row["test_nll_mean"]))


def _row(name: str, runs: list[Run]) -> Row:
    nll = [-run.result["test/elbo"] for run in runs]
    bound = [-run.result["test/multi_sample_bound"] for run in runs]
    return {
        "architecture": runs[0].architecture,
        "estimator": name,
        "unbiased": runs[0].unbiased,
        "objective": runs[0].objective,
        "budget": runs[0].budget,
        "steps": runs[0].steps,
        "seeds": sorted(run.seed for run in runs),
        "test_nll_mean": statistics.fmean(nll),
        "test_nll_sd": statistics.stdev(nll) if len(nll) > 1 else None,
        "multi_sample_nll_mean": statistics.fmean(bound),
        "samples": runs[0].config["model.test_samples"],
        "best_steps": [run.result["best_step"] for run in sorted(runs, key=lambda run: run.seed)],
        "minutes": statistics.fmean(run.result["training_seconds"] for run in runs) / 60,
    }


def as_markdown(rows: list[Row], manifest: Manifest) -> str:
    """The table and its budget."""
    where = f"SBN({rows[0]['architecture']})" if rows else "one architecture"
    samples = rows[0]["samples"] if rows else "multi"
    head = ["estimator", "test NLL", f"{samples}-sample bound", "best step", "seeds"]
    lines = [
        f"**Every estimator on {where}.** Variational bound of the negative log-likelihood on the MNIST test images, "
        "in nats per image (lower is better). Same steps, optimiser and seeds for all, whatever a step costs: "
        "`releg compare` tells that.",
        "",
        line(head),
        rule(len(head)),
    ]
    for row in rows:
        nll = f"{row['test_nll_mean']:.2f}"
        nll += "" if row["test_nll_sd"] is None else f" ± {row['test_nll_sd']:.2f}"
        best = " ".join(f"{step:,}" for step in dict.fromkeys(row["best_steps"]))
        cells = [_name(row), nll, f"{row['multi_sample_nll_mean']:.2f}", best]
        lines.append(line([*cells, str(len(row["seeds"]))]))
    lines += ["", budget_sentence(manifest.runs)]
    if manifest.missing:
        lines += ["", "Not in this table:", "", *missing_lines(manifest)]
    return "\n".join(lines) + "\n"


def _name(row: Row) -> str:
    name = NAMES.get(row["estimator"], str(row["estimator"]))
    if not row["unbiased"]:
        return f"{name} (biased)"
    return f"{name} (climbs the multi-sample bound)" if row["objective"] != "elbo" else name
