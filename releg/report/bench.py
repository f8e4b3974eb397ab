"""bench.md and bench.png from the numbers of `releg bench`: bench.json and bench_studies.json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from releg.files import readable, write_atomically
from releg.records.file_names import BENCH, BENCH_STUDIES
from releg.records.names import label_of
from releg.records.runs import commit
from releg.report.bench_plot import draw
from releg.report.figure import write_figure
from releg.report.page import remove
from releg.report.tables import table

ENGINES = {"cpu": "cpu kernel", "triton": "triton engine", "batched": "batched", "dense": "dense"}
LABELS = {
    "lr": label_of("lr"),
    **{f"crn_{engine}": f"{label_of('crn')}, {text}" for engine, text in ENGINES.items()},
    "pyro_lr": f"Pyro's {label_of('lr')}",
}
FAST = ("crn_cpu", "crn_triton")  # CRN as `auto` computes it: a benchmark has one of them
BUSY_AT_START = 0.5  # a higher load average means that other programs were running
BUSY_AT_END = 1.0  # the same, in addition to the threads of the benchmark

BARE, TRAINER = "bare", "trainer"  # how a step was taken
FLOOR_KEYS = ("architecture", "weights", "threads")

Row = dict[str, Any]


def write_bench(results: Path) -> list[Path]:
    """Write the page and the plot next to the numbers; return their paths, the page first."""
    rows: list[Row] = read(results / BENCH)
    studies: dict[str, Any] = read(results / BENCH_STUDIES)
    page, plot = ((results / BENCH).with_suffix(ending) for ending in (".md", ".png"))
    write_atomically(page, markdown(rows, studies))
    if not studies["scaling"]:
        remove(plot)  # it belongs to another benchmark
        return [page]
    write_figure(plot, draw(studies["scaling"], studies["exponents"], LABELS))
    return [page, plot]


def read(path: Path) -> Any:
    """A file of numbers; ValueError says how to get it."""
    with readable(path, "the numbers of a benchmark", "run releg bench first"):
        return json.loads(path.read_text())


def markdown(rows: Sequence[Row], studies: dict[str, Any]) -> str:
    """The whole page."""
    run = studies["run"]
    parts = ["# What a training step costs", header(run), *floor_section(rows)]
    rows = tabulated(rows, studies)
    parts += [in_short(rows, run["threads"])]
    for weights in dict.fromkeys(row["weights"] for row in rows):
        mine = [row for row in rows if row["weights"] == weights]
        title = "Initial weights" if weights == "initial" else f"Weights after {mine[0]['trained_steps']} steps"
        parts += [f"## {title}", "Milliseconds per step; in brackets the ratio to LR and its quartiles over rounds."]
        parts += [pivot(mine, time_cell), "Peak memory of a step, MiB:", pivot(mine, memory_cell)]
    parts += [*parts_section(rows), *scaling_section(studies), *overhead_section(studies), notes(studies)]
    return "\n\n".join(part for part in parts if part) + "\n"


def tabulated(rows: Sequence[Row], studies: dict[str, Any]) -> list[Row]:
    """The bare steps with the benchmark's own number of threads; older benchmarks have no others."""
    threads = studies["run"]["threads"]
    return [row for row in rows if row.get("via", BARE) == BARE and row.get("threads", threads) == threads]


def header(run: dict[str, Any]) -> str:
    """Machine, versions, commit and load."""
    versions = ", ".join(f"{name} {version}" for name, version in run["packages"].items() if version)
    gpu = f", {run['gpu']}" if run.get("gpu") else ""
    lines = [
        f"- machine: {run['processor'] or 'unknown processor'}, {run['cores']} cores{gpu}, {run['system']}",
        f"- threads: {run['threads']}; batch size {run['batch_size']}; float32; seed {run['seed']}",
        f"- versions: Python {run['python']}, {versions}",
        f"- commit: {commit(run)}; {run['started']}",
        f"- command: `{' '.join(run['command'])}`",
        f"- load average: {_or_dash(run['load_at_start'])} at the start, {_or_dash(run['load_at_end'])} at the end",
    ]
    return "\n".join(lines) + busy(run)


def busy(run: dict[str, Any]) -> str:
    """A warning if other programs were running."""
    start, end = run["load_at_start"], run["load_at_end"]
    if start is None or (start <= BUSY_AT_START and end <= run["threads"] + BUSY_AT_END):
        return ""
    return "\n\n**Other programs were running during the benchmark: do not trust these times.**"


def floor_section(rows: Sequence[Row]) -> list[str]:
    """How far steps are from their floor; older benchmarks did not measure it."""
    fast = fast_of(rows)
    known = [row for row in rows if "ratio_to_floor" in row and row["estimator"] in ("lr", fast)]
    if not known:
        return []
    cells = {(*(row[key] for key in FLOOR_KEYS), row["estimator"], row["via"]): row for row in known}
    columns = [(name, via) for name in ("lr", fast) for via in (BARE, TRAINER)]
    lines = []
    for key in dict.fromkeys(tuple(row[name] for name in FLOOR_KEYS) for row in known):
        found = [cells.get((*key, *column)) for column in columns]
        floors = [_ms(row["floor_ms"]) for row in (found[0], found[2]) if row]
        ratios = [_ratio(row["ratio_to_floor"]) if row else "–" for row in found]
        to_lr = [_ratio(row["ratio_to_lr"]) if row else "–" for row in found[2:]]
        lines.append([f"SBN({key[0]})", key[1], str(key[2]), " / ".join(floors), *ratios, *to_lr])
    head = ["", "weights", "threads", "floor of LR / CRN, ms", "LR", "LR, Trainer", "CRN", "CRN, Trainer"]
    head += ["CRN / LR", "CRN / LR, Trainer"]
    text = (
        "The time of a step divided by its floor: the matrix products that every step needs (logits and gradients of "
        "both nets, and of LR's baselines), timed next to the steps; and the time of a CRN step divided by that of an "
        "LR step. A bare loop takes the steps on batches at hand; the Trainer with its callbacks and loggers also "
        "draws the batches and logs."
    )
    return ["## Against the floor", text, text_table(head, lines)]


def fast_of(rows: Sequence[Row]) -> str:
    """The name of CRN with the engine made for the device."""
    return next((row["estimator"] for row in rows if row["estimator"] in FAST), FAST[0])


def engine_of(name: str) -> str:
    """The engine that computes the flips, from a name like crn_cpu."""
    return ENGINES[name.removeprefix("crn_")]


def in_short(rows: Sequence[Row], threads: int) -> str:
    """The claims, as ranges over all architectures and weights, of bare steps with that many threads."""
    ratio = {(row["architecture"], row["weights"], row["estimator"]): row["ratio_to_lr"] for row in rows}

    def quotients(top: str, bottom: str) -> list[float]:
        found = [(ratio.get((*key, top)), ratio.get((*key, bottom))) for key in dict.fromkeys(k[:2] for k in ratio)]
        return [a / b for a, b in found if a is not None and b is not None]

    fast = fast_of(rows)
    claims = [
        ("an LR step", quotients(fast, "lr")),
        ("a step that simulates every flip in full", quotients(fast, "crn_dense")),
        ("a step of the batched engine", quotients(fast, "crn_batched")),
        ("a step of Pyro's LR", quotients(fast, "pyro_lr")),
    ]
    texts = [f"- {_times(values)} {text}" for text, values in claims if values]
    on_cpu = f" (threads: {threads})" if fast == "crn_cpu" else ""
    return "\n".join([f"A CRN step with the {engine_of(fast)}{on_cpu} costs", "", *texts]) if texts else ""


def _times(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"1/{1 / low:.0f} to 1/{1 / high:.0f} of" if high < 0.2 else f"{low:.2f} to {high:.2f} times"


def pivot(rows: Sequence[Row], cell: Callable[[Row], str]) -> str:
    """One line per architecture, one column per estimator."""
    names = [name for name in LABELS if any(row["estimator"] == name for row in rows)]
    by_key = {(row["architecture"], row["estimator"]): row for row in rows}
    lines = [
        [f"SBN({architecture})", *(cell(by_key[architecture, name]) for name in names)]
        for architecture in dict.fromkeys(row["architecture"] for row in rows)
    ]
    return text_table(["", *(LABELS[name] for name in names)], lines)


def time_cell(row: Row) -> str:
    """14.2 (1.52; 1.49 to 1.55)."""
    if row["estimator"] == "lr":
        return f"{_ms(row['ms_per_step'])}"
    low, high = (_ratio(value) for value in row["ratio_quartiles"])
    return f"{_ms(row['ms_per_step'])} ({_ratio(row['ratio_to_lr'])}; {low} to {high})"


def memory_cell(row: Row) -> str:
    """The peak in MiB, or a dash."""
    return "–" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}"


def parts_section(rows: Sequence[Row]) -> list[str]:
    """The parts of a step of LR and of CRN; on a GPU they are not known."""
    chosen = [row for row in rows if row["weights"] == "trained" and row["estimator"] in ("lr", fast_of(rows))]
    names = list(dict.fromkeys(name for row in chosen for name in row["ms_parts"]))
    if not names:
        return []
    lines = [
        [f"SBN({row['architecture']})", LABELS[row["estimator"]], *(_ms(row["ms_parts"][name]) for name in names)]
        for row in chosen
    ]
    return ["## Where the time goes", "Milliseconds, at trained weights.", text_table(["", "", *names], lines)]


def scaling_section(studies: dict[str, Any]) -> list[str]:
    """The plot and the fitted exponents."""
    if not studies["scaling"]:
        return []
    axes = {"units": "units per layer (depth 2)", "depth": "depth (200 units per layer)"}
    lines = [
        [
            *(axes[row["study"]], f"{row['from']} to {row['to']}", LABELS[row["estimator"]]),
            *(f"{row['exponent']:.2f}", f"{row['exponent_of_ratio']:+.2f}"),
        ]
        for row in studies["exponents"]
    ]
    head = ["time against", "range", "", "exponent", "exponent of the ratio to LR"]
    parts = ["![cost of a step against units per layer and depth](bench.png)", *units_table(studies["scaling"])]
    return [
        "## Growth",
        *parts,
        "Slopes on a log-log scale, fitted over several sizes at initial weights:",
        text_table(head, lines),
    ]


def units_table(rows: Sequence[Row]) -> list[str]:
    """LR and CRN by size, with their growth from one size to the next."""
    fast = fast_of(rows)
    times = {
        name: {row["units"]: row for row in rows if (row["study"], row["estimator"]) == ("units", name)}
        for name in ("lr", fast)
    }
    sizes = list(times[fast])
    if len(sizes) < 2:
        return []

    def exponent(name: str, size: int) -> str:
        if size == sizes[0]:
            return ""
        before = sizes[sizes.index(size) - 1]
        growth = times[name][size]["ms_per_step"] / times[name][before]["ms_per_step"]
        return f"{math.log(growth) / math.log(size / before):.2f}"

    ratios = {size: times[fast][size]["ratio_to_lr"] for size in sizes}
    lines = [
        [
            *(f"{size}", _ms(times["lr"][size]["ms_per_step"]), _ms(times[fast][size]["ms_per_step"])),
            *(_ratio(ratios[size]), exponent("lr", size), exponent(fast, size)),
        ]
        for size in sizes
    ]
    text = (
        f"From {sizes[0]} to {sizes[-1]} units per layer a CRN step costs {min(ratios.values()):.2f} to "
        f"{max(ratios.values()):.2f} times an LR step (depth 2, initial weights, {engine_of(fast)}). At small sizes, "
        "fixed costs hide the growth; the exponents from one size to the next show the trend. The arithmetic of LR "
        "grows with the square of the units, and so does most of CRN's. The exception: one flip changes a set of units "
        "of the next layer, about the square root of the units at these weights, which adds a power of 1/2."
    )
    head = ["units per layer", "LR, ms", "CRN, ms", "ratio", "LR's exponent from the size before", "CRN's"]
    return [text, text_table(head, lines)]


def overhead_section(studies: dict[str, Any]) -> list[str]:
    """The overhead of the Trainer."""
    if not studies["overhead"]:
        return []
    lines = [
        [
            *(f"SBN({row['architecture']})", LABELS[row["estimator"]]),
            f"{row['lost']:.1%} ({row['lost_quartiles'][0]:.1%} to {row['lost_quartiles'][1]:.1%})",
        ]
        for row in studies["overhead"]
    ]
    first = studies["overhead"][0]
    text = (
        "The part of its speed that `releg fit` without validation loses to a bare loop that draws the same batches: "
        f"{first['repetitions']} times {first['steps']} steps each, in turns. Speeds are compared in floors, timed "
        "after every block of steps; in brackets the quartiles."
    )
    return ["## Overhead of the Trainer", text, text_table(["", "", "lost"], lines)]


def notes(studies: dict[str, Any]) -> str:
    """How it was measured, and what was left out."""
    run = studies["run"]
    through_trainer = (
        "Through the Trainer: means over blocks of up to 100 steps, with the floors timed after each; medians over "
        "blocks. LR and CRN train one after the other, so their ratio is taken in floors of LR."
    )
    lines = [
        "A step: draw noise, estimate, zero_grad, backward, RMSprop; on real batches of binarised MNIST. Estimators "
        "take turns within each round, with the same weights and batches; the first step of a turn is discarded. Times "
        "and ratios are medians over rounds. Steps of more than 0.25 s are timed one by one, in fewer rounds.",
        *([through_trainer] if studies["overhead"] else []),
        "Pyro's LR: TraceGraph_ELBO with the same nets, baselines and optimiser, its validation switched off.",
        f"Memory: {run['memory']}.",
        *run["notes"],
    ]
    return "\n".join(["## How it was measured", "", *(f"- {line}" for line in lines)])


def text_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are all aligned to the left; empty without lines."""
    return "\n".join(table(head, lines, texts=len(head))) if lines else ""


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.2f}"


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
