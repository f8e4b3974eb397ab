"""releg bench: what a training step costs with each estimator, in time and memory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import metadata
from pathlib import Path

from lightning_modules.bench import device
from lightning_modules.bench.device import DEVICES
from lightning_modules.bench.memory import METHOD
from lightning_modules.bench.overhead import measure_overhead, through_trainer
from lightning_modules.bench.rounds import Schedule
from lightning_modules.bench.scaling import exponents, measure_scaling
from lightning_modules.bench.steps import PYRO, missing
from lightning_modules.bench.stopwatch import WARM_UP
from lightning_modules.bench.table import Bench, Row, ViaTrainer, first_batches, limited_threads, measure_table
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.command_line.console import say
from lightning_modules.command_line.options import Parser
from lightning_modules.grid.options import at_least
from lightning_modules.run.provenance import provenance
from releg.architecture import layers_of
from releg.files import check_writable, write_json
from releg.machine import cores
from releg.records.file_names import BENCH, BENCH_STUDIES
from releg.records.names import ARCHITECTURES
from releg.report.bench import write_bench

DESCRIPTION = """Time and memory of a whole training step with each estimator, on this machine's CPU or GPU.

Estimators take turns within each round, and each is compared with LR (lr) and with its floor, the matrix products it
cannot avoid, in the same round, at initial weights and at weights after some thousand steps; LR and CRN also with
one thread and through the Trainer. Then the growth of the cost with units per layer and with depth, and what the
Trainer costs. Writes bench.json (one row per architecture, weights, estimator, threads and way), bench_studies.json
(growth, Trainer, and what the run was), bench.md and bench.png."""


@dataclass(frozen=True)
class Effort:
    """How much is measured unless an option says otherwise."""

    rounds: int
    steps: int  # timed per turn
    slow_rounds: int
    train_steps: int
    units: tuple[int, ...]
    depths: tuple[int, ...]
    overhead_steps: int
    overhead_repetitions: int
    memory_once: bool


FULL = Effort(40, 5, 8, 3000, (50, 100, 200, 400, 800, 1600, 3200), (1, 2, 3, 4, 5, 6), 500, 6, False)
QUICK = Effort(5, 2, 1, 150, (50, 200, 400), (1, 2, 3), 60, 2, True)
MEMORY_ONCE = "Measured once, at initial weights, for both"
MEMORY_THRICE = "The largest of three such processes"


def build_parser() -> Parser:
    """All options."""
    parser = Parser("releg bench", DESCRIPTION)
    add = parser.add_argument
    add(
        "--architectures",
        nargs="+",
        type=architecture,
        default=[architecture(name) for name in ARCHITECTURES],
        metavar="SIZES",
        help=f"units per layer, deepest first; default: {' '.join(ARCHITECTURES)}",
    )
    add("--quick", action="store_true", help="a rough answer in less than 3 minutes on 2 cores")
    add(
        "--device",
        choices=DEVICES,
        default="cpu",
        help="cuda: on a GPU, with the triton engine in place of the cpu kernel; default: cpu",
    )
    add("--batch-size", type=at_least(1), default=100, metavar="N", help="images per step; default: 100")
    add("--threads", type=at_least(1), default=cores(), metavar="N", help="default: all cores this process may use")
    add("--output", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    add("--seed", type=int, default=0, help="of weights, batches and noise; default: 0")
    add("--rounds", type=at_least(1), metavar="N", help=f"default: {either('rounds')}")
    add(
        "--train-steps", type=at_least(1), metavar="N", help=f"to the trained weights; default: {either('train_steps')}"
    )
    add("--units", nargs="*", type=at_least(1), metavar="N", help="units per layer at depth 2; default: 50 to 3200")
    add("--depths", nargs="*", type=at_least(1), metavar="N", help="at 200 units per layer; default: 1 to 6")
    add(
        "--overhead-steps",
        type=at_least(0),
        metavar="N",
        help=f"through the Trainer, none with 0; default: {either('overhead_steps')}",
    )
    return parser


def either(setting: str) -> str:
    """The default, and the one with --quick."""
    return f"{getattr(FULL, setting)}, quick {getattr(QUICK, setting)}"


def architecture(text: str) -> tuple[int, ...]:
    """32-64-128-256, deepest first -> (256, 128, 64, 32), shallow first."""
    try:
        return tuple(layers_of(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def main(argv: list[str]) -> int:
    """Measure, print and write. Returns the exit code."""
    options = build_parser().parse_args(argv)
    effort = chosen_effort(options)
    device.check(options.device)
    check_writable(options.output)
    data = BinarizedMNIST(batch_size=options.batch_size, seed=options.seed)
    with limited_threads(options.threads):
        about = provenance() | {"gpu": device.name_of(options.device), "load_at_start": load()}
        schedule = Schedule(effort.rounds, effort.steps, min(effort.slow_rounds, effort.rounds))
        batches = [x.to(options.device) for x in first_batches(data)]
        bench = Bench(data, batches, schedule, effort.memory_once, options.threads, options.seed, options.device)
        rows = measure_table(bench, dict.fromkeys(options.architectures), effort.train_steps, via_trainer(effort))
        scaling = measure_scaling(bench, effort.units, effort.depths)
        repetitions = effort.overhead_repetitions
        overhead = measure_overhead(bench, effort.overhead_steps, repetitions) if effort.overhead_steps else []
        about |= {"load_at_end": load()}
    about |= {
        "batch_size": options.batch_size,
        "threads": options.threads,
        "seed": options.seed,
        "train_steps": effort.train_steps,
        "data_sha256": data.checksum,
        "memory": memory_method(options.device, effort),
        "overhead_warm_up": WARM_UP,
        "notes": list(missing().values()) if options.device == "cpu" else [],
    }
    about["packages"] |= pyro_version()
    studies = {"run": about, "scaling": scaling, "exponents": exponents(scaling), "overhead": overhead}
    commit = {"commit": about["commit"]}
    write(options.output, [row | commit for row in rows], studies)
    return 0


def memory_method(where: str, effort: Effort) -> str:
    """How memory is measured."""
    if where == "cuda":
        return device.METHOD_ON_CUDA
    return f"{METHOD}. {MEMORY_ONCE if effort.memory_once else MEMORY_THRICE}"


def via_trainer(effort: Effort) -> ViaTrainer | None:
    """How the rows through the Trainer are measured: a third as often as its overhead; or not."""
    steps, repetitions = effort.overhead_steps, max(1, effort.overhead_repetitions // 3)
    return (lambda bench, problem: through_trainer(bench, problem, steps, repetitions)) if steps else None


def write(folder: Path, rows: list[Row], studies: Mapping[str, object]) -> None:
    """Write the numbers, then the report made from them."""
    for name, content in ((BENCH, rows), (BENCH_STUDIES, studies)):
        write_json(folder / name, content, indent=2)
    written = write_bench(folder)
    print(written[0].read_text())
    say(f"written to {', '.join(str(path) for path in [folder / BENCH, folder / BENCH_STUDIES, *written])}")


def chosen_effort(options: argparse.Namespace) -> Effort:
    """The preset, changed by what the options say."""
    given = {each.name: getattr(options, each.name, None) for each in fields(Effort)}
    chosen = {name: value for name, value in given.items() if value is not None}
    chosen |= {name: tuple(sorted(set(chosen[name]))) for name in ("units", "depths") if name in chosen}
    return replace(QUICK if options.quick else FULL, **chosen)


def pyro_version() -> dict[str, str]:
    """Version of the optional extra, if it is installed."""
    return {} if PYRO in missing() else {"pyro-ppl": metadata.version("pyro-ppl")}


def load() -> float | None:
    """Load average of the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
