"""releg compare: variance, bias and cost of every estimator at the same weights and images."""

from __future__ import annotations

import sys
from pathlib import Path

from lightning_modules.bench.variance_bias_cost import measured_rows
from lightning_modules.command_line.options import CKPT, TRAINED, add_measurement, read_estimators
from lightning_modules.command_line.parser import Parser
from lightning_modules.run.load import load_trained
from lightning_modules.run.provenance import provenance, without_command
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
    parser.add_argument(*CKPT, type=Path, required=True, metavar="PATH", help=TRAINED)
    add_measurement(parser, shipped_names(), images=50, samples=100, steps=1000)
    parser.add_argument("--output", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    return parser


def main(argv: list[str]) -> int:
    """Measure, print and write. Returns the exit code."""
    options = build_parser().parse_args(argv)
    check_writable(options.output)
    read_estimators(options.estimators)  # a mistake is reported before anything is measured
    path = options.output / COMPARE
    if path.is_file():
        read_compared(path)  # so is a damaged file
    process = without_command(provenance())  # as it starts, not as it ends
    trained = load_trained(options.ckpt, options.data_dir, options.trust)
    images = trained.data.training_images(options.num_images)
    document = {
        "weights": str(options.ckpt),
        "command": " ".join(["releg compare", *argv]),
        "baseline_steps": options.baseline_steps,
        "provenance": process,
        "title": f"{trained.model} after {trained.step:,} steps with {trained.trained_with}",
        "weights_sha256": digest(trained.model.state_dict(), {}),
        "own_baselines": trained.estimator is not None,
        "rows": list(measured_rows(options, trained.model, trained.estimator, images)),
    }
    others = read_compared(path) if path.is_file() else []
    kept = [other for other in others if other["weights"] != document["weights"]]
    write_json(path, sorted([*kept, document], key=lambda compared: str(compared["weights"])))
    print(write_compare(options.output))
    print(f"written to {options.output}/compare.md, .json and .png", file=sys.stderr)
    return 0
