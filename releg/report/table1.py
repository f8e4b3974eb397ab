"""Table 1: variational bound of the negative log-likelihood on the test images, ours beside the paper's."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from releg.report.runs import NAMES, Manifest, Run, budget_sentence, missing_lines, read_manifest, write
from releg.report.tables import as_csv, line, rule

Row = dict[str, Any]
TITLE = "Variational bound of the negative log-likelihood on the MNIST test images, in nats per image (lower is better)"
LEGEND = "Mean ± standard deviation over seeds; minutes are those of training, per run."


def write_table1(results: Path) -> str:
    """Write table1.md, .csv, .json and .tex; answers with the Markdown."""
    manifest = read_manifest(results)
    paper = read_paper(results)
    rows = table_rows(manifest.runs, paper)
    text = as_markdown(rows, manifest, paper)
    write(results / "table1.json", json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    write(results / "table1.csv", as_csv(rows))
    write(results / "table1.tex", as_latex(rows, manifest))
    write(results / "table1.md", text)
    return text


def read_paper(results: Path) -> dict[str, dict[str, float]]:
    """The paper's numbers by architecture and estimator."""
    path = results / "paper.json"
    try:
        table = json.loads(path.read_bytes())["test_nll"]
        return {name: {key: float(value) for key, value in numbers.items()} for name, numbers in table.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}), expected the paper's Table 1; get it from git"
        ) from error


def table_rows(runs: list[Run], paper: dict[str, dict[str, float]]) -> list[Row]:
    """One row per architecture and estimator that has a finished run, in the paper's order."""
    cells = [(architecture, estimator) for architecture, numbers in paper.items() for estimator in numbers]
    rows = []
    for architecture, estimator in cells:
        here = [run for run in runs if (run.architecture, run.estimator) == (architecture, estimator)]
        if here:
            rows.append(_row(architecture, estimator, here, paper[architecture][estimator], budget_sentence(runs)))
    return rows


def _row(architecture: str, estimator: str, runs: list[Run], paper: float, note: str) -> Row:
    nll = [-run.result["test/elbo"] for run in runs]
    bound = [-run.result["test/multi_sample_bound"] for run in runs]
    mean = statistics.fmean(nll)
    return {
        "architecture": architecture,
        "estimator": estimator,
        "budget": runs[0].budget,
        "steps": runs[0].steps,
        "seeds": sorted(run.seed for run in runs),
        "test_nll_mean": mean,
        "test_nll_sd": _sd(nll),
        "paper": paper,
        "difference": mean - paper,
        "multi_sample_nll_mean": statistics.fmean(bound),
        "multi_sample_nll_sd": _sd(bound),
        "samples": runs[0].config["model.test_samples"],
        "best_steps": [run.result["best_step"] for run in sorted(runs, key=lambda run: run.seed)],
        "minutes": statistics.fmean(run.result["training_seconds"] for run in runs) / 60,
        "note": note,
    }


def _sd(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _plus_minus(mean: float, sd: float | None, sign: str = "±") -> str:
    return f"{mean:.2f}" if sd is None else f"{mean:.2f} {sign} {sd:.2f}"


def _best(row: Row) -> str:
    low, high = min(row["best_steps"]), max(row["best_steps"])
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def as_markdown(rows: list[Row], manifest: Manifest, paper: dict[str, dict[str, float]]) -> str:
    """The table, its budget, and what the paper claims: the gap between the estimators."""
    samples = rows[0]["samples"] if rows else "multi"
    head = ["SBN", "estimator", "ours", "paper", "difference", f"{samples}-sample bound"]
    head += ["steps", "best step", "minutes", "seeds"]
    lines = [f"**Table 1.** {TITLE}. {LEGEND}", "", line(head), rule(len(head), texts=2)]
    for row in rows:
        cells = [row["architecture"], NAMES[row["estimator"]]]
        cells += [_plus_minus(row["test_nll_mean"], row["test_nll_sd"]), f"{row['paper']:.2f}"]
        cells += [f"{row['difference']:+.2f}", _plus_minus(row["multi_sample_nll_mean"], row["multi_sample_nll_sd"])]
        cells += [f"{row['steps']:,}", _best(row), f"{row['minutes']:.1f}", str(len(row["seeds"]))]
        lines.append(line(cells))
    lines += ["", budget_sentence(manifest.runs), *_missing(manifest), *_gaps(rows, paper)]
    return "\n".join(lines) + "\n"


def _missing(manifest: Manifest) -> list[str]:
    return ["", "Not in this table:", "", *missing_lines(manifest)] if manifest.missing else []


def _gaps(rows: list[Row], paper: dict[str, dict[str, float]]) -> list[str]:
    """What CRN gains over LR in each architecture that has both."""
    ours = {(row["architecture"], row["estimator"]): row["test_nll_mean"] for row in rows}
    both = [name for name in paper if (name, "lr") in ours and (name, "crn") in ours]
    if not both:
        return []
    head = ["LR − CRN", *both]
    lines = ["", line(head), rule(len(head))]
    lines.append(line(["ours", *(f"{ours[name, 'lr'] - ours[name, 'crn']:+.2f}" for name in both)]))
    lines.append(line(["paper", *(f"{paper[name]['lr'] - paper[name]['crn']:+.2f}" for name in both)]))
    return lines


def as_latex(rows: list[Row], manifest: Manifest) -> str:
    """A table environment; needs booktabs."""
    samples = rows[0]["samples"] if rows else "multi"
    caption = f"{TITLE}. {LEGEND} {budget_sentence(manifest.runs)}".replace("±", r"$\pm$")
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        f"  \\caption{{{caption}}}",
        r"  \centering",
        r"  \begin{tabular}{llrrrrrrr}",
        r"    \toprule",
        "    "
        + f"SBN & estimator & ours & paper & difference & {samples}-sample bound & steps & best step & minutes"
        + r" \\",
        r"    \midrule",
    ]
    for row in rows:
        cells = [row["architecture"], NAMES[row["estimator"]]]
        cells += [_plus_minus(row["test_nll_mean"], row["test_nll_sd"], r"$\pm$"), f"{row['paper']:.2f}"]
        cells += [f"${row['difference']:+.2f}$"]
        cells += [_plus_minus(row["multi_sample_nll_mean"], row["multi_sample_nll_sd"], r"$\pm$")]
        cells += [f"{row['steps']:,}", _best(row), f"{row['minutes']:.1f}"]
        lines.append(f"    {' & '.join(cells)} \\\\")
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"
