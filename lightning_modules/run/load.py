"""Trained weights from their files, with the data that they were trained on: a run's checkpoint, or published ones."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.untrusted_configs import only_shipped_classes
from lightning_modules.run.checkpoints import load_run_checkpoint
from lightning_modules.run.folder import read_config
from lightning_modules.run.identity import check_fits, check_settings, identity_of
from lightning_modules.run.settings import build
from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import name_of
from releg.estimators.base import Estimator
from releg.records.file_names import CONFIG
from releg.records.names import ESTIMATORS
from releg.sbn import SigmoidBeliefNet
from releg.weights import load, load_weights


class Trained(NamedTuple):
    """Weights to measure at."""

    model: SigmoidBeliefNet
    estimator: Estimator | None  # the run's own, which published weights lack
    data: BinaryImages
    step: int
    trained_with: str  # what tables call the estimator


def load_trained(path: Path, data_dir: Path | None = None, trust: bool = False) -> Trained:
    """What a checkpoint in its run's folder holds, or a .safetensors file of results/weights, which are all of MNIST.

    The other arguments are those of load_run.
    """
    if path.suffix == ".safetensors":
        says = load_weights(path)[1]
        if not says.keys() >= {"estimator", "best_step"}:
            raise ValueError(f"{path} does not say how it was trained, expected a file of results/weights")
        label = ESTIMATORS[says["estimator"]].label
        return Trained(load(path), None, BinarizedMNIST(data_dir), int(says["best_step"]), label)
    module, data, step = load_run(path, data_dir, trust)
    label = module.estimator.label or name_of(module.estimator)
    return Trained(module.model, module.estimator, data, step, label)


def load_run(
    checkpoint: Path, data_dir: Path | None = None, trust: bool = False
) -> tuple[SBNModule, BinaryImages, int]:
    """The module, with the checkpoint's weights, the data of its run, and the number of steps it was trained.

    Args:
        checkpoint: a file in the folder of a run.
        data_dir: folder of the data, if it is no longer where the run had it.
        trust: whether classes may be used that are not shipped, if the config beside the checkpoint names some.
    """
    state = load_run_checkpoint(checkpoint)
    if not (checkpoint.parent / CONFIG).is_file():
        raise FileNotFoundError(f"there is no {CONFIG} beside {checkpoint}, expected the run's own; keep them together")
    config = read_config(checkpoint.parent)
    with nullcontext() if trust else only_shipped_classes(checkpoint.parent / CONFIG):
        module, data = build(config, data_dir)
    identity = identity_of(config, module, data)
    fix = f"{checkpoint} and the {CONFIG} beside it are of different runs; keep the files of a run together"
    check_fits(state, identity, module.state_dict(), fix)
    check_settings(state, identity, fix)
    module.load_state_dict(state["state_dict"])
    return module.eval(), data, int(state["global_step"])
