"""releg variance: gradient variance of any list of estimators at the weights of a checkpoint."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from lightning_modules.command_line.console import showing
from lightning_modules.command_line.options import CKPT, TRAINED, Parser, add_measurement, read_estimators
from lightning_modules.grid.options import at_least
from lightning_modules.run.csv_files import variance_csv, variance_rows
from lightning_modules.run.load import load_trained
from lightning_modules.run.provenance import provenance, without_command
from releg.estimators.base import Estimator
from releg.files import check_writable, write_atomically, write_json
from releg.measure.collected import GradientVariances
from releg.measure.fitting import prepare
from releg.measure.in_parts import IMAGES_PER_PART, Work, measure_in_parts
from releg.measure.moments import Number
from releg.records.names import label_of
from releg.weights import digest

REFERENCE = "common_random_numbers"  # what ratios are taken to, if it is among the estimators
COLUMNS = ("within", "between", "total", "exact_within", "optimal_within")

DESCRIPTION = f"""Variance of the gradient w.r.t. the mean of every Bernoulli unit, at a checkpoint's weights.

Averaged over the units of each layer, layer 1 being next to x, with standard errors over images:
  within          over samples, for the same image
  between         of the expected gradient over images
  total           within + between
  exact_within    of likelihood ratios: each unit's own noise integrated out, so that rare events count in full
  optimal_within  the same with the best constant per unit and image added to the baseline
After an interruption, the same command continues a measurement of more than {IMAGES_PER_PART} images.
Ratios compare the within-image variance, the exact one if it is known, with that of {REFERENCE}."""


def build_parser() -> Parser:
    """All options."""
    parser = Parser("releg variance", DESCRIPTION)
    add = parser.add_argument
    add(*CKPT, type=Path, required=True, metavar="PATH", help=TRAINED)
    add_measurement(parser, ["likelihood_ratio", REFERENCE], images=100, samples=1000, steps=2000)
    add(
        "--output",
        type=Path,
        metavar="FILE",
        help="a table if it ends in .md, else CSV; default: grad_variance-<checkpoint>.csv beside the checkpoint",
    )
    add("--jobs", type=at_least(1), default=1, metavar="N", help="processes that share the images; default: 1")
    return parser


def main(argv: list[str]) -> int:
    """Measure, print and write. Returns the exit code."""
    options = build_parser().parse_args(argv)
    others = read_estimators(options.estimators)
    output = _checked(options.output or options.ckpt.with_name(f"grad_variance-{options.ckpt.stem}.csv"))
    made = without_command(provenance())  # as it starts, not as it ends
    trained = load_trained(options.ckpt, options.data_dir, options.trust)
    images = trained.data.training_images(options.num_images)
    asked = prepare(others, trained.estimator, trained.model, images, options.baseline_steps, options.seed)
    count = options.num_images
    work = Work(asked, trained.model, images[:count], options.samples_per_image, options.seed)
    parts = output.with_name(f"{output.name}.parts")
    with showing("gradient variance", count, lambda line: print(line, file=sys.stderr)) as progress:
        results = measure_in_parts(work, parts, options.jobs, progress)
    own = [name for name, estimator in asked.items() if estimator is trained.estimator]
    title = (
        f"{trained.model} after {trained.step} steps with {label_of(trained.trained_with)}: "
        f"variance of the gradient w.r.t. the means, {count} images, {options.samples_per_image} samples each"
    )
    text = f"{title}\n\n{table(results)}\n{_footnote(asked, own, options)}"
    print(text)
    write_atomically(
        output, text + "\n" if output.suffix == ".md" else variance_csv(variance_rows(trained.step, results))
    )
    at = {
        "checkpoint": options.ckpt.name,
        "weights_sha256": digest(trained.model.state_dict(), {}),
        "jobs": options.jobs,
    }
    write_json(output.with_suffix(".json"), {**at, **made})
    shutil.rmtree(parts, ignore_errors=True)
    print(f"written to {output}; what made it, to {output.with_suffix('.json')}", file=sys.stderr)
    return 0


def _checked(output: Path) -> Path:
    """The file to write to; an error now, not after hours, if that cannot be."""
    if output.is_dir():
        raise ValueError(f"--output is the folder {output}, expected a file; name one in it")
    if output.suffix == ".json":
        raise ValueError(f"--output is {output}, expected .csv or .md; what made it is written to a .json beside it")
    check_writable(output.parent)
    return output


def table(results: Mapping[str, GradientVariances]) -> str:
    """A Markdown table with one row per layer and estimator."""
    columns = [kind for kind in COLUMNS if any(kind in result.layers[0] for result in results.values())]
    compared = REFERENCE in results and len(results) > 1
    header = ["layer", "estimator", *columns, *([f"ratio to {REFERENCE}"] if compared else [])]
    rows = [header, ["---"] * len(header)]
    for layer in range(len(next(iter(results.values())).layers)):
        for name, result in results.items():
            numbers = result.layers[layer]
            cells = [_show(numbers[kind]) if kind in numbers else "" for kind in columns]
            if compared:
                best = numbers.get("exact_within", numbers["within"])
                cells.append(_show(best / results[REFERENCE].layers[layer]["within"]) if name != REFERENCE else "1")
            rows.append([str(layer + 1), name, *cells])
    return _aligned(rows)


def _show(number: Number) -> str:
    return f"{number.value:.4g} ± {number.standard_error:.2g}"


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "".join(
        "| " + " | ".join(c.ljust(w, "-" if c == "---" else " ") for c, w in zip(row, widths, strict=True)) + " |\n"
        for row in rows
    )


def _footnote(asked: Mapping[str, Estimator], own: list[str], options: argparse.Namespace) -> str:
    """Where each estimator's baselines come from."""
    trained = [name for name, e in asked.items() if name not in own and next(e.parameters(), None) is not None]
    parts = [f"{name}: the run's own, with what it learned." for name in own]
    parts += [
        f"{name}: baselines trained for {options.baseline_steps} mini-batches at these weights." for name in trained
    ]
    return "\n".join(parts)
