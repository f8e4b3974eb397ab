"""Options that several commands of releg share."""

from __future__ import annotations

from pathlib import Path

from lightning_modules.command_line.parser import Parser, at_least
from lightning_modules.command_line.untrusted_configs import TRUST_HELP
from lightning_modules.shipped_estimators import read_estimator, shipped_names
from releg.estimators.base import Estimator

CKPT = ("--ckpt", "--ckpt_path")
TRAINED = "weights: a checkpoint in the folder of its run, or published ones (.safetensors)"


def add_measurement(parser: Parser, estimators: list[str], images: int, samples: int, steps: int) -> None:
    """Add what releg variance and releg compare both ask: which estimators, how much, on which data."""
    shipped = shipped_names()
    chosen = "all shipped ones" if estimators == shipped else " ".join(estimators)
    own = "mini-batches that train an estimator's own parameters at fixed weights, unless the run has trained them"
    for name, least, default, letter, meaning in (
        ("--num-images", 2, images, "N", "first N training images"),
        ("--samples-per-image", 2, samples, "S", "estimates per image"),
        ("--baseline-steps", 0, steps, "K", own),
    ):
        help = f"{meaning}; default: {default}"
        parser.add_argument(name, type=at_least(least), default=default, metavar=letter, help=help)
    help = f"shipped estimators ({', '.join(shipped)}) or YAML files like theirs; default: {chosen}"
    parser.add_argument("--estimators", nargs="+", default=estimators, metavar="NAME", help=help)
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder with the data; default: that of the run")
    parser.add_argument("--trust", action="store_true", help=TRUST_HELP)
    parser.add_argument("--seed", type=int, default=0, help="of the noise and the batches; default: 0")


def read_estimators(names: list[str]) -> dict[str, Estimator]:
    """The estimators by the names that tell their rows apart; ValueError if two have the same."""
    stems = [Path(name).stem for name in names]
    if len(set(stems)) < len(stems):
        raise ValueError(f"--estimators has {' '.join(stems)}, expected different names; rename one of the files")
    return {stem: read_estimator(name) for stem, name in zip(stems, names, strict=True)}
