"""releg variance: gradient variance of any list of estimators at the weights of a checkpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from lightning_modules.commands.amounts import check_amounts
from lightning_modules.gradient_variance import name_of, prepare, showing, training_images
from lightning_modules.run.load import load_run
from lightning_modules.run.tables import variance_csv, variance_rows
from lightning_modules.shipped_estimators import read_estimator, shipped_names
from releg.estimators.base import Estimator
from releg.files import write_atomically
from releg.measure.moments import Number
from releg.measure.variance import GradientVariances, measure

REFERENCE = "common_random_numbers"  # what ratios are taken to, if it is among the estimators
COLUMNS = ("within", "between", "total", "exact_within", "optimal_within")

DESCRIPTION = f"""Variance of the gradient w.r.t. the mean of every Bernoulli unit, at a checkpoint's weights.

Averaged over the units of each layer, layer 1 being next to x, with standard errors over images:
  within          over samples, for the same image
  between         of the expected gradient over images
  total           within + between
  exact_within    of likelihood ratios: each unit's own noise integrated out, so that rare events count in full
  optimal_within  the same with the best constant per unit and image added to the baseline
Ratios are those of the within-image variance to that of {REFERENCE}: the exact one if there is one."""


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(
        "releg variance", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--ckpt", "--ckpt_path", type=Path, required=True, metavar="PATH", help="checkpoint in the folder of its run")
    add(
        "--estimators",
        nargs="+",
        default=["likelihood_ratio", REFERENCE],
        metavar="NAME",
        help=f"shipped estimators ({', '.join(shipped_names())}) or YAML files like theirs; "
        "default: likelihood_ratio common_random_numbers",
    )
    add("--num-images", type=int, default=100, metavar="N", help="first N training images; default: 100")
    add("--samples-per-image", type=int, default=1000, metavar="S", help="estimates per image; default: 1000")
    add(
        "--baseline-steps",
        type=int,
        default=2000,
        metavar="K",
        help="train the baselines of estimators that are not the run's own for K mini-batches first, at fixed weights; "
        "default: 2000",
    )
    add("--data-dir", type=Path, metavar="DIR", help="folder with the data; default: that of the run")
    add(
        "--output",
        type=Path,
        metavar="FILE",
        help="a table if it ends in .md, else CSV; default: grad_variance-<checkpoint>.csv beside the checkpoint",
    )
    add("--seed", type=int, default=0, help="of the noise; default: 0")
    return parser


def main(argv: list[str]) -> int:
    """Measure, print and write. Returns the exit code."""
    try:
        run(build_parser().parse_args(argv))
    except SystemExit as end:  # argparse has said what was wrong
        return int(end.code or 0)
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"releg variance: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    """Run the command with parsed options."""
    _check(options)
    others = {Path(name).stem: read_estimator(name) for name in options.estimators}
    output = options.output or options.ckpt.with_name(f"grad_variance-{options.ckpt.stem}.csv")
    module, data, step = load_run(options.ckpt, options.data_dir)
    images = training_images(data, options.num_images)
    asked = prepare(others, module.estimator, module.model, images, options.baseline_steps, options.seed)
    count = options.num_images
    with showing("gradient variance", count, lambda line: print(line, file=sys.stderr)) as progress:
        results = measure(asked, module.model, images[:count], options.samples_per_image, options.seed, progress)
    own = [name for name, estimator in asked.items() if estimator is module.estimator]
    title = (
        f"{module.model} after {step} steps with {name_of(module.estimator)}: variance of the gradient w.r.t. the "
        f"means, {count} images, {options.samples_per_image} samples each"
    )
    text = f"{title}\n\n{table(results)}\n{_footnote(asked, own, options)}"
    print(text)
    write_atomically(output, text + "\n" if output.suffix == ".md" else variance_csv(variance_rows(step, results)))
    print(f"written to {output}", file=sys.stderr)


def _check(options: argparse.Namespace) -> None:
    check_amounts(options, "releg variance")
    if options.output is not None and options.output.is_dir():
        raise ValueError(f"--output is the folder {options.output}, expected a file; name one in it")


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
