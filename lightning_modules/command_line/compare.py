"""releg compare: variance, bias and cost of every estimator at the same weights and images."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lightning_modules.bench.variance_bias_cost import Amounts, measured_rows
from lightning_modules.cli import RelegCLI
from lightning_modules.command_line.options import CKPT, TRAINED, add_measurement, read_estimators
from lightning_modules.command_line.parser import Parser
from lightning_modules.run.load import Trained, load_trained
from lightning_modules.run.provenance import provenance, without_command
from lightning_modules.run.settings import build
from lightning_modules.shipped_estimators import shipped_names
from releg.files import check_writable, write_json
from releg.records.file_names import COMPARE
from releg.report.compare import read_compared, write_compare
from releg.weights import digest

DESCRIPTION = """Variance, bias and cost of all estimators at the same weights and on the same training images.

Variance and bias are those of the gradient w.r.t. all weights and biases of the inference net; per layer, of the
gradient w.r.t. the mean of every unit. Bias is measured against a long average of common random numbers. Cost is that
of a whole training step, timed in turns with the likelihood ratio's. Writes compare.md, .json and .png, in which the
numbers at other weights stay."""


def build_parser() -> Parser:
    """The parser of releg compare."""
    parser = Parser("releg compare", DESCRIPTION)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(*CKPT, type=Path, metavar="PATH", help=TRAINED)
    help = "weights: initial ones of the module that these configs describe, given as for releg fit; may be repeated"
    where.add_argument("--config", action="append", metavar="FILE", help=help)
    add_measurement(parser, shipped_names(), images=50, samples=100, steps=1000)
    parser.add_argument("--output", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    return parser


def main(argv: list[str]) -> int:
    """Measure, print and write. Returns the exit code."""
    options = build_parser().parse_args(argv)
    check_writable(options.output)
    read_estimators(options.estimators)  # a mistake is reported before anything is measured
    process = without_command(provenance())  # as it starts, not as it ends
    trained, when = _weights(options)
    amounts = Amounts(options.num_images, options.samples_per_image, options.baseline_steps, options.seed)
    images = trained.data.training_images(options.num_images)
    document = {
        "weights": _without_home(str(options.ckpt)) if options.ckpt else " ".join(map(_without_home, options.config)),
        "command": " ".join(["releg compare", *map(_without_home, argv)]),
        "baseline_steps": options.baseline_steps,
        "provenance": process,
        "title": f"{trained.model} {when}",
        "weights_sha256": digest(trained.model.state_dict(), {}),
        "own_baselines": trained.estimator is not None,
        "rows": list(measured_rows(options.estimators, trained.model, trained.estimator, images, amounts)),
    }
    path = options.output / COMPARE
    others = (
        [other for other in read_compared(path) if other["weights"] != document["weights"]] if path.is_file() else []
    )
    write_json(path, sorted([*others, document], key=lambda compared: str(compared["weights"])))
    print(write_compare(options.output))
    print(f"written to {options.output}/compare.md, .json and .png", file=sys.stderr)
    return 0


def _without_home(word: str) -> str:
    """A path relative to the current folder, or only its name: other people have other folders."""
    path = Path(word)
    if not path.is_absolute():
        return word
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _weights(options: argparse.Namespace) -> tuple[Trained, str]:
    """The weights to measure at, and when in training these are reached."""
    if options.ckpt is None:
        return _untrained(options.config, options.data_dir), "at initial weights"
    trained = load_trained(options.ckpt, options.data_dir, options.trust)
    return trained, f"after {trained.step:,} steps with {trained.trained_with}"


def _untrained(configs: list[str], data_dir: Path | None) -> Trained:
    """The initial weights that the configs describe; what an estimator owns has to be trained for them, too."""
    words = [word for file in configs for word in ("--config", file)]
    if data_dir is not None:
        words += ["--data.data_dir", str(data_dir)]
    module, data = build(RelegCLI("fit", words, only_parse=True).settings.config)
    module.start_from(data.mean)
    return Trained(module.model, None, data, 0, "")
