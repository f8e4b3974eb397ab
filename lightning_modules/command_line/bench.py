"""releg bench: what a training step of LR and of CRN costs, beside its floor and beside JAX."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import torch

from lightning_modules import RESULTS
from lightning_modules.bench.graph_breaks import graph_breaks
from lightning_modules.bench.steps import has_jax
from lightning_modules.bench.tables import Bench, measure_growth, measure_steps
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.command_line.console import say
from lightning_modules.command_line.parser import Parser, at_least
from lightning_modules.run.provenance import provenance
from releg.architecture import architecture_name, layers_of
from releg.files import check_writable, write_json
from releg.machine import cores
from releg.records.file_names import BENCH, WEIGHTS
from releg.records.names import ARCHITECTURES
from releg.report.bench import write_bench

DESCRIPTION = """The time of a whole training step (noise, estimate, gradient, RMSprop) on this machine's CPU or GPU.

LR and CRN, eager, compiled and through the Trainer, beside their floor, the matrix products that a step cannot avoid,
and beside the same step in JAX, if the extra `bench` is installed. All take turns within each round. At the published
weights of CRN where there are some, else at initial ones. Then the growth of the cost with units per layer and with
depth, and which estimators break the compiled graph. Writes bench.json, bench.md and bench.png."""

UNITS, DEPTHS = (50, 100, 200, 400, 800, 1600, 3200), (1, 2, 3, 4, 6)


def build_parser() -> Parser:
    """The parser of releg bench."""
    parser = Parser("releg bench", DESCRIPTION)
    add = parser.add_argument
    nets = [layers_of(name) for name in ARCHITECTURES]
    help = f"units per layer, deepest first; default: {' '.join(ARCHITECTURES)}"
    add("--architectures", nargs="+", type=layers_of, default=nets, metavar="SIZES", help=help)
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    add("--threads", nargs="+", type=at_least(1), default=sorted({1, cores()}), metavar="N", help="default: 1 and all")
    add("--rounds", type=at_least(1), default=12, metavar="N", help="in each, everything has a turn; default: 12")
    add("--steps", type=at_least(1), default=20, metavar="N", help="per turn; default: 20")
    at_depth_2, at_200 = "per layer, at depth 2; default: 50 to 3200", "at 200 units per layer; default: 1 to 6"
    add("--units", nargs="*", type=at_least(1), default=list(UNITS), metavar="N", help=at_depth_2)
    add("--depths", nargs="*", type=at_least(1), default=list(DEPTHS), metavar="N", help=at_200)
    add("--output", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    return parser


def main(argv: list[str]) -> int:
    """Measure, print and write. Returns the exit code."""
    options = build_parser().parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device is cuda, but torch finds no GPU here, expected one; leave --device out for the CPU")
    check_writable(options.output)
    data = BinarizedMNIST()
    bench = Bench(data, options.device, options.rounds, options.steps)
    run = {**provenance(), "batch_size": data.batch_size, "data_sha256": data.checksum}
    run |= {"rounds": options.rounds, "steps_per_turn": options.steps}
    run["packages"] |= {"jax": metadata.version("jax") if has_jax() else None}
    steps = [
        row
        for layers in map(tuple, options.architectures)
        for threads in options.threads
        for row in measure_steps(bench, layers, published_weights(layers), threads)
    ]
    growth = measure_growth(bench, sorted(options.units), sorted(options.depths), max(options.threads))
    document = {"run": run, "steps": steps, "growth": growth, "graph_breaks": graph_breaks()}
    write_json(options.output / BENCH, document, indent=2)
    page, *others = write_bench(options.output)
    print(page.read_text())
    say(f"written to {', '.join(map(str, [options.output / BENCH, page, *others]))}")
    return 0


def published_weights(layers: tuple[int, ...]) -> Path | None:
    """The file of CRN's weights, if this net is one of Table 1."""
    path = RESULTS / WEIGHTS / architecture_name(layers) / "crn.safetensors"
    return path if path.is_file() else None
