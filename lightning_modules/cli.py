"""The releg command: Lightning's fit, validate, test and predict, and the project's own commands beside them."""

from __future__ import annotations

import json
import re
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import yaml
from jsonargparse import DefaultHelpFormatter, Namespace
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.console import USER_ERRORS, answered, is_out_of_memory, one_sentence, quieten, say
from lightning_modules.command_line.untrusted_configs import TRUST_HELP, find_own_modules, only_shipped_classes
from lightning_modules.run import life, ranks
from lightning_modules.run.callbacks import TrainingClock
from lightning_modules.run.csv_files import MetricsCSV
from lightning_modules.run.folder import read_config
from lightning_modules.run.identity import PARTS, Stamp, added, identity_of
from lightning_modules.run.provenance import record_provenance
from lightning_modules.run.settings import (
    BASE,
    Settings,
    data_settings,
    estimator_name,
    find_config,
    listed,
    set_defaults,
)
from lightning_modules.run.step_overhead import lighten
from lightning_modules.run.tensorboard import RunTensorBoard
from lightning_modules.run.trainer_settings import adjusted, check_trainer
from lightning_modules.sbn_module import SBNModule
from releg.files import replacing
from releg.records.file_names import CONFIG

COMMANDS = {
    "fit": "train; the same command again continues an interrupted run",
    "validate": "bound of a checkpoint on the validation images",
    "test": "bounds of a checkpoint on the test images",
    "predict": "reconstructions of the test images by a checkpoint",
}
OWN_COMMANDS = {
    "variance": "variance of the gradient per layer at a checkpoint, for any list of estimators",
    "compare": "every estimator at the same weights: variance, bias, cost",
    "verify": "the published weights of Table 1, evaluated on the test images",
    "bench": "the time of a training step of LR and CRN, beside its floor and beside JAX, and its growth",
}
SETTINGS = ("results_dir", "seed_everything", "model", "data", "trainer")  # what config.yaml keeps
NO_OPTIONS = {"weights_only", "return_predictions"}  # always true: no code in a checkpoint is run
USAGE = "usage: releg COMMAND [OPTIONS]; releg COMMAND --help explains the options\n"
DESCRIPTION = """{examples}

Settings come from configs/base.yaml, then from config files, of which later ones
override earlier ones, and from these options, which override both.
--model.estimator.help NAME and --data.help NAME explain the settings of a class."""
EXAMPLES = {
    "fit": """releg fit --config architecture/sbn_200_200.yaml --config estimator/likelihood_ratio.yaml
releg fit --config architecture/sbn_200_200.yaml --config estimator/arm.yaml --trainer.max_steps 5000""",
    "validate": "releg validate --ckpt results/runs/200-200/arm/seed0/best.ckpt",
    "test": "releg test --ckpt results/runs/200-200/arm/seed0/best.ckpt",
    "predict": "releg predict --ckpt results/runs/200-200/arm/seed0/best.ckpt --output reconstructions.npy",
}


class Help(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """jsonargparse's --help, with the examples as they are written."""


class RelegCLI(LightningCLI):
    """Lightning's command line, for runs that have a folder of their own and continue where they stopped.

    Args:
        command: fit, validate, test or predict.
        arguments: what follows it on the command line.
        only_parse: whether to stop when the settings are known.
        callbacks: besides those of the settings.
    """

    def __init__(
        self, command: str, arguments: list[str], only_parse: bool = False, callbacks: Sequence[pl.Callback] = ()
    ) -> None:
        quieten()
        self.command, self.only_parse = command, only_parse
        self.folder: Path | None = None  # of the run; a trial by fast_dev_run has none
        self.trusted_only: Path | None = None  # the config beside a checkpoint, unless the user trusts it
        with ExitStack() as self.until_the_end:
            super().__init__(
                SBNModule,
                BinaryImages,
                subclass_mode_data=True,
                save_config_callback=None,  # config.yaml reserves the folder, before anything is built
                seed_everything_default=0,
                trainer_defaults={"callbacks": [TrainingClock(), *callbacks]},
                auto_configure_optimizers=False,  # the module's configure_optimizers spares biases from weight decay
                parser_kwargs={
                    "prog": "releg",
                    "formatter_class": Help,
                    "exit_on_error": False,
                    command: _parser_kwargs(command),
                },
                args=[command, *arguments],
            )

    # --- what can be asked

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Only the command that was given: the parsers of all four would take three times as long."""
        return {self.command: LightningCLI.subcommands()[self.command] | NO_OPTIONS}

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The project's own settings come first in --help."""
        parser.add_argument("--results_dir", type=str, default="results", help="Folder that holds runs/.")
        parser.add_argument("--seed_everything", type=int, default=0, help="Seed of weights, noise and images' order.")

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Model and data before the Trainer."""
        parser.add_lightning_class_args(SBNModule, "model")
        parser.add_lightning_class_args(BinaryImages, "data", subclass_mode=True)
        parser.add_lightning_class_args(pl.Trainer, "trainer")

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Which settings are one, and what is asked before a checkpoint is used."""
        set_defaults(parser)
        parser.link_arguments("seed_everything", "model.seed")
        parser.link_arguments("seed_everything", "data.init_args.seed")
        parser.link_arguments("trainer.default_root_dir", "trainer.logger.init_args.save_dir")
        command = str(parser.usage).split()[1]
        if command != "fit":
            parser.add_argument("--trust", action="store_true", help=TRUST_HELP)
        if command == "predict":
            parser.add_argument(
                "--output", type=str, default="reconstructions.npy", help="File for the means of pixels."
            )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Find shipped configs by their names; a checkpoint alone is used with the config beside it."""
        command, *words = args
        words = _find_files(words)
        if command != "fit" and "--config" not in words:
            words = [*self._config_beside(words), *words]
        with self._trust():
            self.config = parser.parse_args([command, *words])

    def _parse_ckpt_path(self) -> None:
        """Read nothing from a checkpoint: Lightning would let its settings override those that the user gives."""

    def _config_beside(self, words: list[str]) -> list[str]:
        """The config beside the checkpoint, without what logs and watches a training run."""
        (path,) = [after for word, after in pairwise(words) if word == "--ckpt_path"][-1:] or [""]
        if path and not Path(path).is_file():
            raise FileNotFoundError(f"there is no checkpoint {path}, expected a file; give the path of a best.ckpt")
        beside = Path(path).with_name(CONFIG) if path else Path(CONFIG)
        if not path or not beside.is_file():
            return []
        config = read_config(beside.parent)
        for name in PARTS:
            config["trainer"].pop(name, None)
        self.trusted_only = None if "--trust" in words else beside
        return ["--config", yaml.safe_dump(config)]

    def _trust(self) -> AbstractContextManager[None]:
        return nullcontext() if self.trusted_only is None else only_shipped_classes(self.trusted_only)

    # --- from settings to objects

    def before_instantiate_classes(self) -> None:
        """Check the settings, and open the run's folder; who logs, logs there."""
        command, given = str(self.subcommand), self.config[self.subcommand]
        if None in (given.data, given.results_dir) or not isinstance(given.trainer, Namespace):
            raise ValueError("data, trainer or results_dir is null, expected settings; leave it out for the defaults")
        check_trainer(vars(given.trainer), command)
        self.settings = self._settings(given)
        if self.only_parse:
            return
        if command != "fit":
            given.trainer.logger = added(given.trainer.logger) or False
        elif given.ckpt_path:
            raise ValueError(
                f"releg fit got the checkpoint {given.ckpt_path}, expected none, since a run follows from its settings "
                "and continues from its own; leave it out, or evaluate it by releg test"
            )
        elif not given.trainer.fast_dev_run:
            self.folder = self.until_the_end.enter_context(life.opened(self.settings))
            given.trainer.default_root_dir = str(self.folder)
        for logger in listed(given.trainer.logger):
            if isinstance(logger, Namespace) and "save_dir" in logger.init_args:
                logger.init_args.save_dir = str(self.folder or ".")

    def _settings(self, given: Namespace) -> Settings:
        parser = self._parser(self.subcommand)
        dumped = parser.dump(given, format="json", skip_link_targets=False, skip_unset=False, skip_validation=True)
        config = {name: value for name, value in json.loads(dumped).items() if name in SETTINGS}
        config["data"] = data_settings(config["data"])
        name = estimator_name(config, [Path(str(file)) for file in given.config or []])
        return Settings(config, Path(given.results_dir), name)

    def instantiate_classes(self) -> None:
        """Build everything; whatever the classes of Lightning, torch or the user raise is one sentence."""
        if self.only_parse:
            self.subcommand = None  # nothing to run
            return
        try:
            with self._trust():
                super().instantiate_classes()
        except USER_ERRORS:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise ValueError(
                f"these settings do not work ({type(error).__name__}: {one_sentence(error)}), expected "
                f"some that releg {self.subcommand} --help describes; correct them"
            ) from error

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Lightning's Trainer, with the parts of a run."""
        trainer = super().instantiate_trainer(**adjusted(self._get(self.config_init, "trainer")), **kwargs)
        lighten(trainer, self.model)
        return trainer

    # --- a run

    def before_fit(self) -> None:
        """Record who trains, and go on from the newest checkpoint."""
        if self.folder is None:
            return
        changes = (
            record_provenance(self.folder, self.datamodule.checksum, self.settings.config) if ranks.is_first() else ""
        )
        identity = self._identity(self.trainer.num_devices * self.trainer.num_nodes)
        model = {**self.settings.config["model"], "data_size": self.model.model.data_size}
        self.trainer.callbacks.insert(0, Stamp(identity, model))  # type: ignore[attr-defined]
        checkpoint, step = life.find_start(self.folder, identity, self.model)
        self.config_init.fit.ckpt_path = checkpoint
        for logger in self.trainer.loggers:
            if isinstance(logger, MetricsCSV | RunTensorBoard):
                logger.start_at(step)
        if checkpoint and changes:
            say(f"resuming with {changes}; the result may differ from an uninterrupted run's")

    def after_fit(self) -> None:
        """Finish the run: test its best model."""
        if self.folder is not None:
            life.finish(self.settings, self.trainer, self.model, self.datamodule, self.folder)

    def _identity(self, number_of_ranks: int = 1) -> dict[str, Any]:
        return identity_of(self.settings.config, self.model, self.datamodule, number_of_ranks)

    # --- a checkpoint

    def before_test(self) -> None:
        """Refuse a checkpoint of another net."""
        path = self.config_init[self.subcommand].ckpt_path
        step = life.check_for_evaluation(path, self._identity(), self.model, str(self.subcommand))
        if self.trainer.is_global_zero:
            print(f"{path}, step {step}:")

    before_validate = before_predict = before_test

    def after_predict(self) -> None:
        """Write the reconstructions, (images, pixels)."""
        output = Path(self.config_init.predict.output)
        with replacing(output) as file:
            np.save(file, torch.cat(self.trainer.predict_loop.predictions).cpu().numpy())
        say(f"written to {output}")


def _parser_kwargs(command: str) -> dict[str, Any]:
    return {
        "usage": f"releg {command} [OPTIONS]",
        "description": DESCRIPTION.format(examples=EXAMPLES[command]),
        "exit_on_error": False,
        "default_config_files": [str(BASE)],
    }


def _find_files(words: list[str]) -> list[str]:
    """Words in which --ckpt is --ckpt_path, and every --config has the path of its file, a shipped one or not."""
    in_pairs = (re.sub(r"^(--config|--ckpt|--ckpt_path)=", r"\1\n", word).split("\n", 1) for word in words)
    found = ["--ckpt_path" if part == "--ckpt" else part for pair in in_pairs for part in pair]
    for place, word in enumerate(found[:-1]):
        if word in ("--config", "-c"):
            found[place : place + 2] = ["--config", find_config(found[place + 1])]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Entry point. Returns the exit code: 0, or 2 after one sentence about what was wrong."""
    ranks.follow_launcher()
    quieten()
    return answered(lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    command, *options = arguments or ["--help"]
    if command in ("--help", "-h"):
        print("\n".join([USAGE, *(f"  {name:<10} {text}" for name, text in (COMMANDS | OWN_COMMANDS).items())]))
        return 0 if arguments else 2
    if command not in COMMANDS | OWN_COMMANDS:
        known = ", ".join(COMMANDS | OWN_COMMANDS)
        raise ValueError(f"there is no command {command}, expected one of {known}; see releg --help")
    find_own_modules(options)
    if command in COMMANDS:
        RelegCLI(command, options)
        return 0
    own = import_module(f"lightning_modules.command_line.{command}")
    return own.main(options)


if __name__ == "__main__":
    sys.exit(main())
