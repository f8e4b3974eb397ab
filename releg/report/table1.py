"""Table 1: variational bound of the negative log-likelihood on the test images, next to the paper's."""

from __future__ import annotations

import json
from pathlib import Path

from releg.files import write_atomically, write_json
from releg.records.file_names import PAPER, RUNS, TABLE1
from releg.records.names import BUDGETS, ESTIMATORS, LONGEST_BUDGETS, PUBLISHED_BUDGET, label_of
from releg.report.artefacts import readable
from releg.report.luck import by_luck, luck_words, variance_over_seeds
from releg.report.runs import (
    Manifest,
    Row,
    Run,
    bound_title,
    budget_sentence,
    longer_folders,
    missing_lines,
    over_seeds,
    read_manifest,
    unfinished_lines,
)
from releg.report.tables import as_csv, listed, plus_minus, table

Paper = dict[str, dict[str, float]]
PLUS_MINUS = r"$\pm$"  # in LaTeX
CLOSE = 0.5  # nats: a bound this near to the paper's reproduces it
COLUMNS = (
    *("architecture", "estimator", "budget", "steps", "seeds", "test_nll_mean", "test_nll_sd", "paper", "difference"),
    *("multi_sample_nll_mean", "multi_sample_nll_sd", "samples", "best_steps", "threads", "minutes", "note"),
)


def write_table1(results: Path) -> str:
    """Write table1.md, .csv, .json and .tex, and again those of other budgets that show some of these numbers.

    Returns the Markdown. The published table also has the rows of longer budgets; only table1.json does not: each
    folder has its own. Other budgets' tables are compared with the published one.
    """
    text = _write(results)
    for folder in _that_show(results):
        _write(folder)
    return text


def _that_show(results: Path) -> list[Path]:
    """The folders whose tables have numbers of this one."""
    if results.name in LONGEST_BUDGETS:
        folders = [results.parent]
    else:
        folders = [] if results.name in BUDGETS else [results / budget for budget in BUDGETS]
    return [folder for folder in folders if (folder / RUNS).is_file()]


def _write(results: Path) -> str:
    """The files of one folder."""
    manifest = read_manifest(results)
    rows, longer = table_rows(manifest.runs, read_paper(results)), longer_rows(results)
    text = as_markdown(rows, longer, manifest, luck_words(results, rows))
    text += _unfinished_for_longer(results) + beside_published(rows, results)
    path = write_json(results / TABLE1, rows, indent=2)
    write_atomically(path.with_suffix(".csv"), as_csv([*rows, *longer]))
    write_atomically(path.with_suffix(".tex"), as_latex(rows, longer, manifest))
    write_atomically(path.with_suffix(".md"), text)
    return text


def read_paper(results: Path) -> Paper:
    """The paper's numbers by architecture and estimator."""
    path = results / PAPER
    with readable(path, "the paper's Table 1", "restore it with git"):
        numbers = json.loads(path.read_bytes())["test_nll"]
        return {name: {key: float(value) for key, value in each.items()} for name, each in numbers.items()}


def table_rows(runs: list[Run], paper: Paper) -> list[Row]:
    """One row per net and paper estimator that has a finished run: the paper's nets in its order, then others."""
    nets = dict.fromkeys([*paper, *(run.net for run in runs)])
    cells = [[run for run in runs if (run.net, run.estimator) == (net, e)] for net in nets for e in ESTIMATORS]
    return [_row(here, paper, budget_sentence(runs)) for here in cells if here]


def _row(runs: list[Run], paper: Paper, note: str) -> Row:
    row = over_seeds(runs)
    theirs = paper.get(row["architecture"], {}).get(row["estimator"])
    difference = None if theirs is None else row["test_nll_mean"] - theirs
    row |= {"paper": theirs, "difference": difference, "note": note}
    return {name: row[name] for name in COLUMNS}


def _best(row: Row) -> str:
    low, high = min(row["best_steps"]), max(row["best_steps"])
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def as_markdown(rows: list[Row], longer: list[Row], manifest: Manifest, chance: str = "") -> str:
    """The table, its budget, the paper's claim (the gap between the estimators), and what was trained for longer.

    `chance` is what the test bits and the seeds have to do with it.
    """
    lines = [f"**Table 1.** {_legend([*rows, *longer], manifest)}", "", *([*_table(rows), ""] if rows else [])]
    lines += [
        budget_sentence(manifest.runs),
        *missing_lines(manifest, "Not in this table"),
        *unfinished_lines(manifest),
    ]
    lines += _gaps(rows)
    lines += ["", chance] if chance else []
    if longer:
        lines += ["", "Trained for longer:", "", *_table(longer), "", *_notes(longer), *_where_they_end(rows, longer)]
    return "\n".join(lines) + "\n"


def _table(rows: list[Row]) -> list[str]:
    return table(_head(rows), [_cells(row) for row in rows], texts=2)


def _unfinished_for_longer(results: Path) -> str:
    """How far the unfinished runs of longer budgets are, whose folders are in this one."""
    folders = [folder for folder in longer_folders(results) if (folder / RUNS).is_file()]
    lines = [line for folder in folders for line in unfinished_lines(read_manifest(folder))]
    return "\n".join([*lines, ""])


def _where_they_end(rows: list[Row], longer: list[Row]) -> list[str]:
    """Where LR, trained for longer, ends below CRN of the table or level with it; and CRN after as many steps as LR."""
    variance = variance_over_seeds(rows)
    crn = {row["architecture"]: row for row in rows if row["estimator"] == "crn"}
    nets: dict[str, list[str]] = {"below": [], "within luck of": []}
    for lr in (row for row in longer if row["estimator"] == "lr" and row["architecture"] in crn):
        difference, luck = _difference(lr, crn[lr["architecture"]], variance)
        if difference <= luck:
            nets["below" if difference < -luck else "within luck of"].append(lr["architecture"])
    lines = [f"LR is {words} CRN in the table above with {listed(here)}." for words, here in nets.items() if here]
    lines += [_after(steps, longer, variance) for steps in sorted({row["steps"] for row in longer})]
    return ["", " ".join(filter(None, lines))] if any(lines) else []


def _after(steps: int, longer: list[Row], variance: float) -> str:
    """How far CRN is below or above LR, both after this many steps; empty if no net has both."""
    known = {(row["architecture"], row["estimator"]): row for row in longer if row["steps"] == steps}
    words = []
    for net in (net for net, name in known if name == "crn" and (net, "lr") in known):
        difference, luck = _difference(known[net, "crn"], known[net, "lr"], variance)
        side = f"{abs(difference):.2f} nats {'below' if difference < 0 else 'above'} LR with {net}"
        words.append(side if abs(difference) > luck else f"{side}, which can be luck")
    return f"After {steps:,} steps, CRN is {listed(words)}." if words else ""


def _difference(one: Row, other: Row, variance: float) -> tuple[float, float]:
    """Of two bounds on the same bits, and how large it can be by luck."""
    luck = by_luck(variance, len(one["seeds"]), len(other["seeds"]))
    return one["test_nll_mean"] - other["test_nll_mean"], luck


def _notes(rows: list[Row]) -> list[str]:
    """Their budgets."""
    return list(dict.fromkeys(row["note"] for row in rows))


def _legend(rows: list[Row], manifest: Manifest) -> str:
    """What the numbers are."""
    several = any(len(row["seeds"]) > 1 for row in rows)
    over, run = (" Mean ± standard deviation over seeds.", "the fastest run") if several else ("", "a run")
    one_thread = " on one thread" if {count for row in rows for count in row.get("threads", [0])} == {1} else ""
    clock = f"Minutes: the training steps of {run}{one_thread}, without validation and measurements"
    return f"{bound_title(manifest.runs)}.{over} {clock}; longer if the machine had other work."


def longer_rows(results: Path) -> list[Row]:
    """The rows of the longer budgets whose tables are in folders of this one."""
    rows = []
    for folder in longer_folders(results):
        path = folder / TABLE1
        if path.is_file():
            with readable(path, f"Table 1 of the budget {folder.name}", "restore it with git"):
                rows += list(json.loads(path.read_bytes()))
    return rows


def beside_published(rows: list[Row], results: Path) -> str:
    """In the folder of another budget: a comparison with the published bounds, which are one folder up."""
    path = results.parent / TABLE1
    if results.name not in BUDGETS or not rows or not path.is_file():
        return ""
    with readable(path, "the published Table 1", "restore it with git"):
        published = {(row["architecture"], row["estimator"]): row for row in json.loads(path.read_bytes())}
    body = []
    for row in rows:
        other = published.get((row["architecture"], row["estimator"]))
        known = [row["test_nll_mean"], other["test_nll_mean"] if other else None, row["paper"]]
        numbers = ["" if number is None else f"{number:.2f}" for number in known]
        body.append([row["architecture"], label_of(row["estimator"]), *numbers])
    head = ["SBN", "estimator", "here", PUBLISHED_BUDGET, "paper"]
    title = "Compared with the published table (../table1.md):"
    return "\n".join(["", title, "", *table(head, body, texts=2), ""])


def _head(rows: list[Row]) -> list[str]:
    samples = rows[0]["samples"] if rows else "multi"
    head = ["SBN", "estimator", "ours", "paper", "difference", f"{samples}-sample bound"]
    return [*head, "steps", "best step", "minutes", "seeds"]


def _cells(row: Row, sign: str = "±", maths: str = "") -> list[str]:
    """The cells of a row; the paper's is empty for a net that it lacks."""
    paper, difference = ("", "") if row["paper"] is None else (f"{row['paper']:.2f}", f"{row['difference']:+.2f}")
    return [
        row["architecture"],
        label_of(row["estimator"]),
        plus_minus(row["test_nll_mean"], row["test_nll_sd"], sign),
        paper,
        difference and f"{maths}{difference}{maths}",
        plus_minus(row["multi_sample_nll_mean"], row["multi_sample_nll_sd"], sign),
        f"{row['steps']:,}",
        _best(row),
        f"{row['minutes']:.1f}",
        str(len(row["seeds"])),
    ]


def _gaps(rows: list[Row]) -> list[str]:
    """How far CRN is below LR for each net that has both."""
    ours, paper = gap(rows, "test_nll_mean"), gap(rows, "paper")
    if not ours:
        return []
    cells = [f"{paper[net]:+.2f}" if net in paper else "" for net in ours]
    lines = [
        "",
        *table(["LR − CRN", *ours], [["ours", *(f"{each:+.2f}" for each in ours.values())], ["paper", *cells]]),
    ]
    arrived = {name: {row["architecture"] for row in rows if _is_close(row, name)} for name in ("lr", "crn")}
    behind = [net for net in ours if net in arrived["crn"] - arrived["lr"]]
    if behind:
        every = {row["architecture"] for row in rows}
        nets = "all nets of this table" if 1 < len(behind) == len(every) else ", ".join(behind)
        lines += ["", f"These gaps are at equal steps. With {nets}, {_how_close(rows, behind)}."]
    return lines


def _how_close(rows: list[Row], nets: list[str]) -> str:
    """How CRN compares with the paper where LR has not come close to it."""
    highest = max(row["difference"] for row in rows if row["estimator"] == "crn" and row["architecture"] in nets)
    if highest <= 0:
        return "CRN is at or below the paper's bound, and LR is more than half a nat above it"
    return "CRN is at most half a nat above the paper's bound, and LR has not come that far"


def _is_close(row: Row, estimator: str) -> bool:
    return bool(row["estimator"] == estimator and row["difference"] is not None and row["difference"] <= CLOSE)


def gap(rows: list[Row], kind: str) -> dict[str, float]:
    """LR minus CRN by net, where both are known."""
    known = {(row["architecture"], row["estimator"]): float(row[kind]) for row in rows if row[kind] is not None}
    return {net: lr - known[net, "crn"] for (net, name), lr in known.items() if name == "lr" and (net, "crn") in known}


def as_latex(rows: list[Row], longer: list[Row], manifest: Manifest) -> str:
    """A table environment; needs booktabs."""
    caption = f"{_legend([*rows, *longer], manifest)} {budget_sentence(manifest.runs)}".replace("±", PLUS_MINUS)
    if longer:
        caption = " ".join([caption, "Below the line, trained for longer:", *_notes(longer)])
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        f"  \\caption{{{caption}}}",
        r"  \centering",
        r"  \begin{tabular}{llrrrrrrrr}",
        r"    \toprule",
        f"    {' & '.join(_head(rows))} \\\\",
        r"    \midrule",
        *_latex_rows(rows),
    ]
    lines += [r"    \midrule", *_latex_rows(longer)] if longer else []
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _latex_rows(rows: list[Row]) -> list[str]:
    return [f"    {' & '.join(_cells(row, PLUS_MINUS, '$'))} \\\\" for row in rows]
