"""The releg command: fit, validate and test through LightningCLI, and the project's own commands beside them."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_modules.binary_images import BinaryImages
from lightning_modules.console import USER_ERRORS, answered, complain, one_sentence, quieten, say
from lightning_modules.files import write_atomically
from lightning_modules.run import folder as run_folder
from lightning_modules.run import ranks
from lightning_modules.run.callbacks import ImageGrids, ProgressFile, StepProgress, TrainingClock
from lightning_modules.run.checkpoints import (
    BEST,
    LAST,
    RunCheckpoint,
    SafeCheckpointIO,
    load_run_checkpoint,
    newest_whole,
)
from lightning_modules.run.load import add_data, link_data
from lightning_modules.run.lock import locked_run
from lightning_modules.run.provenance import record_provenance
from lightning_modules.run.tables import MetricsCSV
from lightning_modules.sbn_module import SBNModule

CONFIGS = Path(__file__).parent / "configs"
OWN_COMMANDS = {
    "variance": "variance of the gradient per layer at a checkpoint, for any list of estimators",
    "compare": "every estimator at the same weights: variance, bias, cost",
    "verify": "the published weights of Table 1, evaluated on the test images",
    "bench": "time and memory of a training step with each estimator, on this machine",
}
USAGE = """usage: releg COMMAND [OPTIONS]; releg COMMAND --help explains the options

  fit        train; the same command again continues an interrupted run
  validate   bound of a checkpoint on the validation images
  test       bounds of a checkpoint on the test images
"""


class Parser(LightningArgumentParser):
    """With our own default for `data`; Lightning's would also accept none."""

    def add_lightning_class_args(self, lightning_class: Any, nested_key: str, *args: Any, **kwargs: Any) -> list[str]:
        """Add the arguments of the trainer, the model or the data."""
        if nested_key == "data":
            return add_data(self)
        return super().add_lightning_class_args(lightning_class, nested_key, *args, **kwargs)


class RelegCLI(LightningCLI):
    """Layered configs; runs in folders of their own; continued where they stopped."""

    model: SBNModule
    datamodule: BinaryImages

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with ExitStack() as self.held:  # the lock on the run's folder
            super().__init__(*args, **kwargs)

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Without predict, which has no meaning here."""
        return {name: skip for name, skip in LightningCLI.subcommands().items() if name != "predict"}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """One seed for everything, and where results go."""
        parser.add_argument("--results_dir", type=str, default="results", help="Folder that holds runs/.")
        parser.link_arguments("seed_everything", "model.seed")
        parser.link_arguments("seed_everything", "data.init_args.seed")
        link_data(parser)

    def _parse_ckpt_path(self) -> None:
        """Settings come from configs only, never from within a checkpoint."""

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Give the run its folder, loggers and callbacks."""
        config = self.plain_config()
        folder = run_folder.find_run_folder(Path(self._get(self.config, "results_dir")), config)
        fitting = self.subcommand == "fit" and not config["trainer"]["fast_dev_run"]
        settings: dict[str, Any] = {
            "default_root_dir": str(folder),
            "plugins": [SafeCheckpointIO()],
            "logger": [],
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "num_sanity_val_steps": 0,
        }
        if fitting:
            if ranks.is_first():
                self.held.enter_context(locked_run(folder))
            self.resumed = self._get(self.config, "ckpt_path") or newest_whole(folder)
            settings["logger"] = [MetricsCSV(folder), _tensorboard(folder, self.resumed)]
            settings["val_check_interval"] = _at_most(config["trainer"]["val_check_interval"], config["trainer"])
        trainer = super().instantiate_trainer(**settings, **kwargs)
        ranks.share_machine(trainer)
        if self.subcommand == "fit":
            self.clock, self.keeper = TrainingClock(), RunCheckpoint(enabled=fitting)
            callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
            callbacks.extend([self.clock, StepProgress(), ProgressFile(), ImageGrids(), self.keeper])
        return trainer

    def instantiate_classes(self) -> None:
        """Whatever the classes of Lightning, torch or the user raise when they are built, settings are the cause."""
        try:
            super().instantiate_classes()
        except USER_ERRORS:
            raise
        except Exception as error:
            raise ValueError(
                f"nothing can be built from these settings ({type(error).__name__}: {one_sentence(error)}), expected "
                f"some that releg {self.subcommand} --help describes; correct them"
            ) from error

    def plain_config(self) -> dict[str, Any]:
        """All settings, as config.yaml keeps them."""
        parser = self._parser(self.subcommand)
        return run_folder.plain(yaml.safe_load(parser.dump(self.config[str(self.subcommand)], skip_link_targets=False)))

    def fit(self, model: SBNModule, **kwargs: Any) -> None:
        """Train, from the newest whole checkpoint of the same run if there is one; then test the best model."""
        trainer, folder = self.trainer, Path(self.trainer.default_root_dir)
        if self.config.fit.trainer.fast_dev_run:
            trainer.fit(model, **kwargs)
            return
        if (folder / run_folder.RESULT).is_file() and kwargs.get("ckpt_path") is None:
            say(f"{folder} is finished already; nothing to do. {_read_bound(folder)}")
            return
        self._open(folder)
        kwargs["ckpt_path"] = self.resumed
        if self.resumed:
            say(f"continuing {folder} from {Path(self.resumed).name}")
        trainer.fit(model, **kwargs)
        if trainer.global_step >= trainer.max_steps:
            self._finish(folder, model)

    @rank_zero_only
    def _open(self, folder: Path) -> None:
        run_folder.save_config(folder, self.plain_config())
        self.datamodule.prepare_data()
        record_provenance(folder, self.datamodule.checksum)

    def _finish(self, folder: Path, model: SBNModule) -> None:
        """Test the best model and write result.json, which marks the run as finished."""
        result: dict[str, Any] = {  # read before the test, which loads the best model's state
            "steps": self.trainer.global_step,
            "best_step": self.keeper.best_step,
            "training_seconds": round(self.clock.seconds, 3),
            "val/elbo": self.keeper.best_elbo,
        }
        best = folder / (BEST if (folder / BEST).is_file() else LAST)
        (metrics,) = self.trainer.test(model, datamodule=self.datamodule, ckpt_path=best, verbose=False)
        result.update({name: value for name, value in metrics.items() if name != "step"})
        self._log_hyperparameters(metrics)
        if self.trainer.is_global_zero:
            write_atomically(folder / run_folder.RESULT, json.dumps(result, indent=2) + "\n")
            say(f"{folder} is finished. {_read_bound(folder)}")

    def _log_hyperparameters(self, metrics: Mapping[str, float]) -> None:
        config = self.plain_config()
        data = run_folder.data_settings(config)
        settings: dict[str, Any] = {
            "architecture": run_folder.architecture_of(config),
            "estimator": run_folder.estimator_of(config),
            "steps": config["trainer"]["max_steps"],
            "seed": config["seed_everything"],
            **{key: data[key] for key in ("batch_size", "binarization") if key in data},
            **{key: config["model"][key] for key in ("loss", "weight_decay")},
            "learning_rate": config["model"]["optimizer"]["init_args"].get("lr"),
        }
        for logger in self.trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.log_hyperparams(settings, dict(metrics))
                logger.save()


def _tensorboard(folder: Path, resumed: str | Path | None) -> TensorBoardLogger:
    """A logger that hides what was logged after the checkpoint that the run continues from."""
    purge_step = load_run_checkpoint(Path(resumed))["global_step"] + 1 if resumed else None
    return TensorBoardLogger(folder, name="", version="", purge_step=purge_step)


def _read_bound(folder: Path) -> str:
    result = json.loads((folder / run_folder.RESULT).read_text())
    return f"test/elbo {result['test/elbo']:.2f} after {result['steps']} steps (best at {result['best_step']})"


def _at_most(interval: int | float | None, trainer: dict[str, Any]) -> int | float | None:
    """A run shorter than the interval between validations still ends with one."""
    steps = trainer["max_steps"]
    return min(interval, steps) if isinstance(interval, int) and steps > 0 else interval


def find_configs(arguments: list[str]) -> list[str]:
    """Replace names of shipped configs by their paths; files that exist as given win."""
    found = list(arguments)
    for position, argument in enumerate(arguments):
        if argument in ("--config", "-c") and position + 1 < len(arguments):
            found[position + 1] = _find_config(arguments[position + 1])
        elif argument.startswith("--config="):
            found[position] = f"--config={_find_config(argument.removeprefix('--config='))}"
    return found


def _find_config(name: str) -> str:
    if Path(name).is_file():
        return name
    if (CONFIGS / name).is_file():
        return str(CONFIGS / name)
    shipped = sorted(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.yaml"))
    raise FileNotFoundError(f"there is no config {name}, expected a file or one of {', '.join(shipped)}; name one")


def lightning_command(arguments: list[str]) -> int:
    """Fit, validate or test."""
    _start(RelegCLI, arguments)
    return 0


def fit_config(arguments: list[str]) -> dict[str, Any]:
    """The config that `releg fit` saves when given these arguments; nothing is built or run."""
    return _start(_ParsedOnly, ["fit", *arguments]).plain_config()


class _ParsedOnly(RelegCLI):
    """Stops after parsing."""

    def _set_seed(self) -> None:
        pass

    def instantiate_classes(self) -> None:
        pass

    def _run_subcommand(self, subcommand: str) -> None:
        pass


def _start(cli: type[RelegCLI], arguments: list[str]) -> RelegCLI:
    quieten()
    return cli(
        SBNModule,
        BinaryImages,
        subclass_mode_data=True,
        parser_class=Parser,
        save_config_callback=None,
        seed_everything_default=0,
        auto_configure_optimizers=False,
        load_from_checkpoint_support=False,
        parser_kwargs={"exit_on_error": False, **{n: {"exit_on_error": False} for n in RelegCLI.subcommands()}},
        args=find_configs(arguments),
    )


def main(arguments: list[str] | None = None) -> int:
    """Entry point; answers with the exit code: 0, or 2 after one sentence about what was wrong."""
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-h"):
        print(USAGE + "".join(f"  {name:<10} {text}\n" for name, text in OWN_COMMANDS.items()), end="")
        return 0 if arguments else 2
    run: Callable[[list[str]], int]
    if command in OWN_COMMANDS:
        run = importlib.import_module(f"lightning_modules.commands.{command}").main
        arguments = arguments[1:]
    elif command in RelegCLI.subcommands():
        run = lightning_command
    else:
        known = ", ".join([*RelegCLI.subcommands(), *OWN_COMMANDS])
        return complain(f"there is no command {command}, expected one of {known}; see releg --help")
    ranks.follow_launcher()
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # classes of the user's own, by their dotted names, as `python -m` finds them
    return answered(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
