"""From files to objects: the module and the data that a config describes, with the weights of a checkpoint."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from lightning_modules.binary_images import BinaryImages
from lightning_modules.run.checkpoint_content import check_belongs
from lightning_modules.run.checkpoints import load_run_checkpoint
from lightning_modules.run.folder import CONFIG, DEFAULT_DATA, data_settings, read_config
from lightning_modules.sbn_module import SBNModule


def load_run(checkpoint: Path, data_dir: Path | None = None) -> tuple[SBNModule, BinaryImages]:
    """The module, with the checkpoint's weights, and the data of the run that a checkpoint lies in.

    Args:
        checkpoint: a file in the folder of a run.
        data_dir: where the data lie if no longer where the run had them.
    """
    state = load_run_checkpoint(checkpoint)
    if not (checkpoint.parent / CONFIG).is_file():
        raise FileNotFoundError(f"there is no {CONFIG} beside {checkpoint}, expected the run's own; keep them together")
    config = read_config(checkpoint.parent)
    if data_dir is not None:
        data_settings(config)["data_dir"] = str(data_dir)
    module, data = build(config)
    identity = {
        "architecture": module.model.architecture,
        "estimator": type(module.estimator).__name__,
        "data": data.checksum,
    }
    fix = f"{checkpoint} and the {CONFIG} beside it are of different runs; keep the files of a run together"
    check_belongs(state, identity, module.state_dict(), fix)
    module.load_state_dict(state["state_dict"])
    return module.eval(), data


def build(config: dict[str, Any]) -> tuple[SBNModule, BinaryImages]:
    """The module, with its initial weights, and the data that a config describes."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(SBNModule, "model")
    add_data(parser)
    link_data(parser)
    described = copy.deepcopy({key: config[key] for key in ("model", "data")})  # the parser writes into it
    built = parser.instantiate(parser.parse_object(described))
    return built.model, built.data


def add_data(parser: ArgumentParser) -> list[str]:
    """Add the option `data`: BinarizedMNIST, unless a config names another subclass of BinaryImages."""
    explained = (
        "Settings of BinarizedMNIST, for instance --data.binarization fixed --data.batch_size 100; "
        "--data.help BinarizedMNIST explains them. Or the class path of another subclass of BinaryImages."
    )
    default = {"class_path": DEFAULT_DATA}
    added: list[str] = parser.add_subclass_arguments(BinaryImages, "data", default=default, help=explained)
    return added


def link_data(parser: ArgumentParser) -> None:
    """Give the model as many pixels as the data have."""
    parser.link_arguments("data.data_size", "model.data_size", apply_on="instantiate")
