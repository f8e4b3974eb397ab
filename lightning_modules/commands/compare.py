"""releg compare: variance, bias and cost of every estimator at the same weights and images."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from jsonargparse import ArgumentError

from lightning_modules.bench.comparer import Amounts, Comparer, Row
from lightning_modules.bench.fresh_process import FreshProcess
from lightning_modules.commands.amounts import check_amounts
from lightning_modules.gradient_variance import name_of, training_images
from lightning_modules.run.load import load_run
from lightning_modules.run.provenance import provenance
from lightning_modules.run.settings import Settings
from lightning_modules.shipped_estimators import read_estimator, shipped_names
from releg.files import write_atomically
from releg.report.compare import write_compare
from releg.report.names import label_of

DESCRIPTION = """Variance, bias and cost of all estimators at the same weights and on the same training images.

Variance and bias are those of the gradient w.r.t. all weights and biases of the inference net; per layer, of the
gradient w.r.t. the mean of every unit. Bias is measured against a long average of common random numbers. Cost is that
of a whole training step, timed in turns with the likelihood ratio's. Writes compare.md, compare.csv, compare.json and
compare.png. Finished measurements are kept: the same command again continues."""


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(
        "releg compare", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        *("--ckpt", "--ckpt_path"), type=Path, metavar="PATH", help="weights: those of a checkpoint in its run's folder"
    )
    where.add_argument(
        "--config",
        action="append",
        metavar="FILE",
        help="weights: initial ones of the module that these configs describe, given as for releg fit; may be repeated",
    )
    add(
        "--estimators",
        nargs="+",
        default=shipped_names(),
        metavar="NAME",
        help=f"shipped estimators or YAML files like theirs; default: all shipped ones ({', '.join(shipped_names())})",
    )
    add("--num-images", type=int, default=50, metavar="N", help="first N training images; default: 50")
    add("--samples-per-image", type=int, default=100, metavar="S", help="estimates per image; default: 100")
    add(
        "--baseline-steps",
        type=int,
        default=1000,
        metavar="K",
        help="mini-batches on which an estimator's own parameters are trained first, at fixed weights; default: 1000",
    )
    add("--output", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    add("--data-dir", type=Path, metavar="DIR", help="folder with the data; default: that of the run")
    add("--seed", type=int, default=0, help="of noise and batches; default: 0")
    return parser


def main(argv: list[str]) -> int:
    """Measure, print and write. Returns the exit code."""
    try:
        run(build_parser().parse_args(argv), argv)
    except SystemExit as end:  # argparse has said what was wrong
        return int(end.code or 0)
    except KeyboardInterrupt:
        print("releg compare: interrupted; the same command continues", file=sys.stderr)
        return 130
    except (ValueError, OSError, FloatingPointError, ArgumentError) as error:
        print(f"releg compare: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace, argv: list[str]) -> None:
    """Run the command with parsed options."""
    _check(options)
    for name in options.estimators:
        read_estimator(name)  # a mistake is reported before anything is measured
    rows: list[Row] = []
    with FreshProcess() as process:
        comparer, title = _comparer(options, process)
        for number, name in enumerate(options.estimators, start=1):
            print(f"{number} of {len(options.estimators)}: {Path(name).stem}", file=sys.stderr, flush=True)
            rows.append(comparer.row(name))
    document = {
        "title": title,
        "command": " ".join(["releg compare", *map(_without_home, argv)]),
        "baseline_steps": options.baseline_steps,
        "provenance": {key: value for key, value in provenance().items() if key != "command"},
        "rows": rows,
    }
    write_atomically(options.output / "compare.json", json.dumps(document, indent=1) + "\n")
    print(write_compare(options.output))
    print(f"written to {options.output}/compare.md, .csv, .json and .png", file=sys.stderr)


def _without_home(word: str) -> str:
    """A path relative to the current folder, or only its name: other people have other folders."""
    path = Path(word)
    if not path.is_absolute():
        return word
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _comparer(options: argparse.Namespace, process: FreshProcess) -> tuple[Comparer, str]:
    if options.ckpt is not None:
        module, data, steps = load_run(options.ckpt, options.data_dir)
        when = f"after {steps:,} steps with {label_of(name_of(module.estimator))}"
    else:
        arguments = [word for file in options.config for word in ("--config", file)]
        module, data, *_ = Settings("fit", arguments).build()
        data.prepare_data()
        data.setup("fit")
        module.model.mean.copy_(data.mean)
        when = "at initial weights"
    settings = Amounts(options.num_images, options.samples_per_image, options.baseline_steps, options.seed)
    images = training_images(data, options.num_images)
    store = options.output / "compare"
    return Comparer(module.model, module.estimator, images, settings, store, process), f"{module.model} {when}"


def _check(options: argparse.Namespace) -> None:
    check_amounts(options, "releg compare")
    options.output.mkdir(parents=True, exist_ok=True)
