"""compare.md, compare.csv and compare.png from compare.json: variance, bias and cost of every estimator."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from releg.files import write_atomically
from releg.records.csv_formats import csv_text
from releg.records.file_names import COMPARE
from releg.records.names import label_of
from releg.report.artefacts import readable
from releg.report.compare_plot import draw
from releg.report.runs import Row, machine
from releg.report.style import as_bytes
from releg.report.tables import plain, table, with_error

DETECTED = 5.0  # standard errors of bias2 above zero
FEW_IMAGES = 20  # with fewer, a standard error over images is itself too uncertain to divide by
LR = "likelihood_ratio"


def write_compare(results: Path) -> str:
    """Write the artefacts; return the Markdown."""
    path = results / COMPARE
    with readable(path, "what releg compare writes", "run it again"):
        document = json.loads(path.read_bytes())
        rows = on_one_clock(document["rows"])
        text = as_markdown({**document, "rows": rows})
    write_atomically(path.with_suffix(".csv"), as_csv(rows))
    write_atomically(path.with_suffix(".png"), as_bytes(draw(rows, document["title"]), dpi=200))
    write_atomically(path.with_suffix(".md"), text)
    return text


def on_one_clock(rows: list[Row]) -> list[Row]:
    """Milliseconds as if all were timed together: the ratio to LR times the median of LR's times."""
    clock = statistics.median(row["lr_ms_per_step"] for row in rows)
    ratios = [1.0 if row["estimator"] == LR else row["ratio_to_lr"] for row in rows]  # LR's own differs by noise
    return [
        {**row, "ratio_to_lr": ratio, "ms_per_step": ratio * clock} for row, ratio in zip(rows, ratios, strict=True)
    ]


def work(row: Row) -> float:
    """Work-normalised variance: variance times milliseconds."""
    return float(row["within"]["value"] * row["ms_per_step"])


def name_of(row: Row) -> str:
    """The estimator, with a warning if it is biased or climbs another bound."""
    return label_of(row["estimator"], row["unbiased"], row["objective"])


def bias(row: Row) -> str:
    """The relative bias if one is detected, else an upper bound for it."""
    value, error = row["bias2"]["value"], row["bias2"]["standard_error"]
    if row["objective"] != "elbo":
        return "climbs another bound"
    if row["num_images"] < FEW_IMAGES:
        return "too few images"
    if value > DETECTED * error:
        return f"{100 * _relative(value, row):.0f}%" + (f" (z = {value / error:.0f})" if error else "")
    bound = _relative(max(value, 0.0) + 2 * error, row)
    return f"none detected, below {100 * bound:.0f}%" if bound < 1 else "varies too much to tell"


def _relative(bias2: float, row: Row) -> float:
    """Length of the bias relative to that of the gradient."""
    return float((bias2 / row["gradient2"]) ** 0.5) if row["gradient2"] > 0 else math.inf


def as_markdown(document: dict[str, Any]) -> str:
    """The main table, least work-normalised variance first, then the layers."""
    rows = sorted(document["rows"], key=work)
    first = rows[0]
    reference = next((work(row) for row in rows if row["estimator"] == LR), None)
    head = ["estimator", "variance", "total variance", "bias", "evaluations", "ms per step", "ratio to LR", "MiB"]
    head += ["variance × ms", *([] if reference is None else ["gain over LR"])]
    lines = [
        "# Every estimator at the same weights",
        "",
        f"{document['title']}; {first['num_images']} training images, {first['samples_per_image']} estimates each.",
        "",
        "- variance: trace of the covariance of the gradient w.r.t. all weights and biases of the inference net, for "
        "one image; total variance: for a random image",
        "- bias: distance between the mean estimate and a long average of common random numbers, relative to the "
        "length of that gradient. It counts as detected if z = bias² / its standard error is above 5. If it is not, "
        "bias² + 2 standard errors is an upper bound, which is no use if it exceeds the gradient itself.",
        "- gain over LR: LR's variance × ms divided by the estimator's",
        "- ± and the bars of the figure: one standard error over images",
        "",
        *table(head, [_cells(row, reference) for row in rows]),
    ]
    lines += ["", "![variance against cost](compare.png)", "", *_layers(document["rows"]), *_how(document)]
    return "\n".join(lines) + "\n"


def _cells(row: Row, reference: float | None) -> list[str]:
    return [
        name_of(row),
        _figure(row["within"]),
        _figure(row["total"]),
        bias(row),
        f"{row['evaluations']:,}",
        f"{row['ms_per_step']:.1f}",
        f"{row['ratio_to_lr']:.2f}",
        "" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}",
        plain(work(row)),
        *([] if reference is None else [plain(reference / work(row))]),
    ]


def _layers(rows: list[Row]) -> list[str]:
    depth = len(rows[0]["layers"])
    kinds = ("within", "total")
    head = ["estimator", *(f"{kind}, layer {layer}" for layer in range(1, depth + 1) for kind in kinds)]
    lines = [
        "## By layer",
        "",
        "The gradient w.r.t. the mean of every unit, averaged over the units of a layer; layer 1 is next to x. It is "
        "the gradient w.r.t. the logit divided by mean (1 - mean), so saturated units weigh heavily unless an "
        "estimator accounts for them. within: variance for one image; total: for a random image. Where the standard "
        "error is as large as the value, a few rare draws make up most of it: read no order from such numbers. Biases "
        "per layer are in compare.csv.",
    ]
    ordered = sorted(rows, key=lambda row: float(row["within"]["value"]))
    cells = [[name_of(row), *(_figure(layer[kind]) for layer in row["layers"] for kind in kinds)] for row in ordered]
    return [*lines, "", *table(head, cells)]


def _how(document: dict[str, Any]) -> list[str]:
    made = document["provenance"]
    except_own = ", except those of the estimator that trained the run" if document["own_baselines"] else ""
    return [
        "",
        "## How it was made",
        "",
        f"- `{document['command']}`",
        f"- {_minutes(document)} on {machine(made)}",
        f"- commit {made.get('commit', 'unknown')}",
        f"- baselines and control variates were trained for {document['baseline_steps']:,} mini-batches at these "
        f"weights{except_own}",
        "- a step is noise, estimate, backward, RMSprop on 100 images; the ratio to LR is the median over rounds in "
        "which both took turns, and ms per step is this ratio times LR's median",
        f"- LR's own step took {_clock(document)} ms in these rounds; the wider this range, the busier the machine",
    ]


def _clock(document: dict[str, Any]) -> str:
    times = [row["lr_ms_per_step"] for row in document["rows"]]
    return f"{min(times):.1f} to {max(times):.1f}"


def _minutes(document: dict[str, Any]) -> str:
    """The total time; an estimator that an earlier command measured counts with its time then."""
    return f"{sum(row['seconds'] for row in document['rows']) / 60:.1f} minutes"


def _figure(figure: dict[str, float]) -> str:
    return with_error(figure["value"], figure["standard_error"])


def as_csv(rows: list[Row]) -> str:
    """One row per estimator and layer, and one over all parameters."""
    plain = ["estimator", "unbiased", "objective", "evaluations", "ms_per_step", "ratio_to_lr", "peak_mib"]
    kinds = ["within", "total", "bias2"]
    head = [*plain, "gradient2", "part", *(name for kind in kinds for name in (kind, f"{kind}_standard_error"))]
    lines = []
    for row in rows:
        parts = [("all inference parameters", row), *((f"layer {i}", x) for i, x in enumerate(row["layers"], start=1))]
        for name, part in parts:
            figures = [part[kind] for kind in kinds]
            numbers = [number for figure in figures for number in (figure["value"], figure["standard_error"])]
            lines.append([*(row[key] for key in plain), row["gradient2"], name, *numbers])
    return csv_text(head, lines)
