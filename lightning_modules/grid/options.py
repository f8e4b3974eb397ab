"""The options of reproduce.sh. This module loads nothing heavy, so a mistake is answered at once."""

from __future__ import annotations

import argparse
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path

from lightning_modules import CONFIGS, OWN_RESULTS
from lightning_modules.command_line.parser import Parser, at_least
from releg.records.names import ARCHITECTURES, BUDGETS, DEFAULT_BUDGET, ESTIMATORS

# Who makes the runs; lightning_modules/grid/launchers/contract.py has the contract
LAUNCHERS = {"local": "launchers.local", "ray": "launchers.ray"}
ONLY_FOR = {"--jobs": "local", "--ray-address": "ray", "--gpus-per-run": "ray"}

DESCRIPTION = """Trains the paper's four sigmoid belief nets with the likelihood ratio (lr) and with common random
numbers (crn), measures the gradient variances, and writes Table 1 and Figure 1 to results/mine/BUDGET, after each run.
Finished runs are kept, interrupted ones continue: after an interruption give the same command again."""

VERIFY = "`bash reproduce.sh --verify` trains nothing: it evaluates the published weights on the test images."


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    budget: Path
    seeds: int
    jobs: int | None  # None: as many as the machine can run
    only: tuple[str, str] | None  # architecture, and estimator or ""
    results: Path
    launcher: str  # of LAUNCHERS
    ray_address: str | None
    gpus_per_run: float  # of a Ray cluster's GPUs


def parse_options(arguments: list[str]) -> Options:
    """Read the command line; ValueError, with a sentence, after a mistake."""
    parser = _parser()
    given = parser.parse_args(arguments)
    _check_launcher(parser, given)
    called_from = Path(given.called_from).absolute()
    budget = budget_file(given.budget) if given.budget in BUDGETS else called_from / given.budget
    if not budget.is_file():
        parser.error(f"there is no budget {given.budget}, expected one of {', '.join(BUDGETS)}, or a YAML file")
    results = called_from / given.results if given.results else OWN_RESULTS / budget.stem
    launcher = (given.launcher, given.ray_address, given.gpus_per_run or 0.0)
    return Options(budget, given.seeds, given.jobs, given.only, results, *launcher)


def _parser() -> Parser:
    parser = Parser("bash reproduce.sh", DESCRIPTION, VERIFY)
    add = parser.add_argument
    add(
        "--budget",
        default=DEFAULT_BUDGET,
        metavar="BUDGET",
        help="steps per run and learning rate: quick (the default), 50,000 to 80,000 steps, with a rate for either "
        "estimator; standard 200,000 (the published table); converged 1,000,000; smoke 200 (does everything work?); "
        "paper 2,000,000 at its constant rate; or a YAML file like those in lightning_modules/configs/budget",
    )
    add("--seeds", type=at_least(1), default=1, metavar="N", help="train with the seeds 0 to N-1; default: 1")
    add("--jobs", type=at_least(1), metavar="N", help="runs at a time, here; default: one per core, or one on a GPU")
    add("--launcher", choices=LAUNCHERS, default="local", help="make runs on this machine or on a Ray cluster")
    add("--ray-address", metavar="ADDRESS", help="of the cluster's head; default: RAY_ADDRESS, or Ray on this machine")
    add("--gpus-per-run", type=_share, metavar="SHARE", help="of a GPU, for each run on the cluster; default: none")
    add("--only", type=_part_of_the_grid, metavar="ARCHITECTURE[,ESTIMATOR]", help="such as 200-200 or 200-200,crn")
    add("--results", help=argparse.SUPPRESS)  # another folder for the results
    add("--called-from", default=".", help=argparse.SUPPRESS)  # what relative paths are relative to
    return parser


def _check_launcher(parser: Parser, given: argparse.Namespace) -> None:
    for option, name in ONLY_FOR.items():
        if name != given.launcher and getattr(given, option.removeprefix("--").replace("-", "_")) is not None:
            parser.error(f"{option} is given, expected --launcher {name} with it; add that, or leave {option} out")
    if given.launcher == "ray" and importlib.util.find_spec("ray") is None:
        parser.error("there is no Ray here, expected it for --launcher ray; install it with pip install -e '.[ray]'")


def architecture_file(name: str) -> Path:
    """The overlay of an architecture, such as sbn_200_200.yaml; it is there if the architecture can be trained."""
    return CONFIGS / "architecture" / f"sbn_{name.replace('-', '_')}.yaml"


def budget_file(name: str) -> Path:
    """The shipped budget of this name."""
    return CONFIGS / "budget" / f"{name}.yaml"


def is_shipped(budget: Path, name: str) -> bool:
    """Whether the budget is this one, and not a user's own of the same name."""
    return budget.samefile(budget_file(name))


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected a number from 0 to 1")
    return share


def _part_of_the_grid(text: str) -> tuple[str, str]:
    architecture, comma, estimator = text.partition(",")
    architecture = architecture.removeprefix("SBN(").removesuffix(")")
    if not architecture_file(architecture).is_file():
        nets = ", ".join(ARCHITECTURES)
        raise argparse.ArgumentTypeError(
            f"got the architecture {architecture}, expected one of {nets}, or another one of {CONFIGS / 'architecture'}"
        )
    if comma and estimator not in ESTIMATORS:
        raise argparse.ArgumentTypeError(
            f"got the estimator {estimator}, expected {' or '.join(ESTIMATORS)}; the others are compared by "
            "python -m lightning_modules.studies.race"
        )
    return architecture, estimator
