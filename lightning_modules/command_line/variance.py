"""releg variance: gradient variance of any list of estimators at the weights of a checkpoint."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from lightning_modules.command_line.console import progress_bar
from lightning_modules.command_line.options import CKPT, TRAINED, add_measurement, read_estimators
from lightning_modules.command_line.parser import Parser, at_least
from lightning_modules.run.csv_files import variance_rows
from lightning_modules.run.load import load_trained
from lightning_modules.run.provenance import provenance, without_command
from releg.estimators.base import Estimator
from releg.files import check_writable, write_atomically, write_json
from releg.measure.fitting import prepare
from releg.measure.moments import GradientVariances, Number
from releg.measure.parts import IMAGES_PER_PART, Work, measure_in_parts
from releg.records.csv_formats import VARIANCE_COLUMNS, csv_text
from releg.report.page import Column, markdown
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
    """The parser of releg variance."""
    parser = Parser("releg variance", DESCRIPTION)
    add = parser.add_argument
    add(*CKPT, type=Path, required=True, metavar="PATH", help=TRAINED)
    add_measurement(parser, ["likelihood_ratio", REFERENCE], images=100, samples=1000, steps=2000)
    help = "a .csv file; default: grad_variance-<checkpoint>.csv beside the checkpoint"
    add("--output", type=Path, metavar="FILE", help=help)
    add("--jobs", type=at_least(1), default=1, metavar="N", help="processes that share the images; default: 1")
    return parser


def main(argv: list[str]) -> int:
    """Measure, print and write. Returns the exit code."""
    options = build_parser().parse_args(argv)
    others = read_estimators(options.estimators)
    output = _checked(options.output or options.ckpt.with_name(f"grad_variance-{options.ckpt.stem}.csv"))
    process = without_command(provenance())  # as it starts, not as it ends
    trained = load_trained(options.ckpt, options.data_dir, options.trust)
    images = trained.data.training_images(options.num_images)
    asked = prepare(others, trained.estimator, trained.model, images, options.baseline_steps, options.seed)
    count = options.num_images
    work = Work(asked, trained.model, images[:count], options.samples_per_image, options.seed)
    parts = output.with_name(f"{output.name}.parts")
    with progress_bar("gradient variance", count, " images") as bar:
        results = measure_in_parts(work, parts, options.jobs, bar.update)
    title = (
        f"{trained.model} after {trained.step} steps with {trained.trained_with}: "
        f"variance of the gradient w.r.t. the means, {count} images, {options.samples_per_image} samples each"
    )
    print(f"{title}\n\n{table(results)}\n\n{_footnote(asked, trained.estimator, options.baseline_steps)}")
    write_atomically(output, csv_text(VARIANCE_COLUMNS, variance_rows(trained.step, results)))
    at = {"checkpoint": options.ckpt.name, "weights_sha256": digest(trained.model.state_dict(), {})}
    write_json(output.with_suffix(".json"), {**at, "jobs": options.jobs, **process})
    shutil.rmtree(parts, ignore_errors=True)
    print(f"written to {output}; what made it, to {output.with_suffix('.json')}", file=sys.stderr)
    return 0


def _checked(output: Path) -> Path:
    """The file to write to; an error now, not after hours, if that cannot be."""
    if output.is_dir():
        raise ValueError(f"--output is the folder {output}, expected a file; name one in it")
    if output.suffix != ".csv":
        raise ValueError(f"--output is {output}, expected a name that ends in .csv; change it")
    check_writable(output.parent)
    return output


def table(results: Mapping[str, GradientVariances]) -> str:
    """A Markdown table with one row per layer and estimator."""
    kinds = [kind for kind in COLUMNS if any(kind in result.layers[0] for result in results.values())]
    depth = len(next(iter(results.values())).layers)
    columns: list[Column[tuple[int, str]]] = [
        Column("layer", lambda row: str(row[0] + 1)),
        Column("estimator", lambda row: row[1], is_text=True),
        *(Column(kind, partial(_cell, results, kind)) for kind in kinds),
    ]
    if REFERENCE in results and len(results) > 1:
        columns.append(Column(f"ratio to {REFERENCE}", partial(_ratio, results)))
    return markdown(columns, [(layer, name) for layer in range(depth) for name in results])


def _cell(results: Mapping[str, GradientVariances], kind: str, row: tuple[int, str]) -> str | None:
    layer, name = row
    numbers = results[name].layers[layer]
    return _show(numbers[kind]) if kind in numbers else None


def _ratio(results: Mapping[str, GradientVariances], row: tuple[int, str]) -> str:
    layer, name = row
    numbers, reference = (results[which].layers[layer] for which in (name, REFERENCE))
    return "1" if name == REFERENCE else _show(numbers.get("exact_within", numbers["within"]) / reference["within"])


def _show(number: Number) -> str:
    return f"{number.value:.4g} ± {number.standard_error:.2g}"


def _footnote(asked: Mapping[str, Estimator], own: Estimator | None, steps: int) -> str:
    """Where each estimator's baselines come from."""
    trained = f"baselines trained for {steps} mini-batches at these weights."
    sources = {name: "the run's own, with what it learned." if e is own else trained for name, e in asked.items()}
    return "\n".join(f"{name}: {sources[name]}" for name, e in asked.items() if e is own or [*e.parameters()])
