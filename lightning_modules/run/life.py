"""The life of a run: opened, continued where it stopped, finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.loggers import TensorBoardLogger

from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.console import EndedEarlyError, say
from lightning_modules.run import ranks
from lightning_modules.run.callbacks import TrainingClock
from lightning_modules.run.checkpoints import BEST, LAST, find_newest, load_run_checkpoint
from lightning_modules.run.folder import await_run_folder, claimed_run_folder
from lightning_modules.run.identity import OF_EVALUATION, check_fits, check_ranks, check_settings, differences
from lightning_modules.run.provenance import PROVENANCE
from lightning_modules.run.result import read_result, write_result
from lightning_modules.run.saving import BestCheckpoint
from lightning_modules.run.settings import Config, Settings
from lightning_modules.sbn_module import SBNModule
from releg.architecture import architecture_name
from releg.records.file_names import CONFIG, RESULT

UNFINISHED = 75  # exit code: try again later
FIX = "use the config.yaml of the checkpoint's run"
Identity = Mapping[str, Any]
Part = TypeVar("Part", bound=pl.Callback)


class Start(NamedTuple):
    """The checkpoint that a run continues from."""

    path: Path
    step: int


@contextmanager
def opened(settings: Settings) -> Iterator[Path]:
    """The run's folder, which this process holds; a run that could not begin leaves no config behind.

    EndedEarlyError, with exit code 0, if the run is finished already.
    """
    if not ranks.is_first():
        yield await_run_folder(settings)
        return
    with claimed_run_folder(settings) as folder:
        if _is_finished(folder):
            raise EndedEarlyError(f"{folder} is finished already; nothing to do. {_read_bound(folder)}", 0)
        try:
            yield folder
        finally:
            if not any((folder / name).is_file() for name in (PROVENANCE, RESULT, LAST, BEST)):
                (folder / CONFIG).unlink(missing_ok=True)


def find_start(folder: Path, given: str | None, identity: Identity, module: SBNModule) -> Start | None:
    """The run's own newest checkpoint or, if it has none yet, the one that the user gives, if it fits."""

    def check(checkpoint: dict[str, Any]) -> None:
        check_fits(checkpoint, identity, module.state_dict(), FIX)
        check_settings(checkpoint, identity, FIX)

    found = find_newest(folder, check) or (_given(Path(given), identity, module) if given else None)
    if found is None:
        return None
    path, checkpoint = found
    check_ranks(checkpoint, identity, FIX)
    say(f"continuing {folder} from {path.name}")
    return Start(path, checkpoint["global_step"])


def _given(path: Path, identity: Identity, module: SBNModule) -> tuple[Path, dict[str, Any]]:
    checkpoint = load_run_checkpoint(path)
    check_fits(checkpoint, identity, module.state_dict(), FIX)
    others = differences(checkpoint["identity"].get("settings", identity["settings"]), identity["settings"])
    for key, (there, here) in others.items():
        say(f"{path} was trained with {key} {there}; from here on it is {here}")
    return path, checkpoint


def check_for_evaluation(path: str | None, identity: Identity, module: SBNModule, command: str) -> int:
    """The step of the checkpoint that is evaluated; ValueError if there is none, or if it is of another net."""
    if not path:
        raise ValueError(f"releg {command} got no checkpoint, expected --ckpt PATH; name a run's best.ckpt")
    checkpoint = load_run_checkpoint(Path(path))
    check_fits(checkpoint, identity, module.state_dict(), FIX)
    check_settings(checkpoint, identity, FIX, OF_EVALUATION)
    return int(checkpoint["global_step"])


def check_is_finished(trainer: pl.Trainer, folder: Path) -> None:
    """EndedEarlyError if a limit of time has stopped training; whatever else stops it, has finished it."""
    timers = [callback for callback in trainer.callbacks if isinstance(callback, Timer)]  # type: ignore[attr-defined]
    if any((left := timer.time_remaining()) is not None and left <= 0 for timer in timers):
        raise EndedEarlyError(
            f"{folder} is not finished: training stopped at step {trainer.global_step} of {trainer.max_steps} "
            "(max_time); the same command continues it",
            UNFINISHED,
        )


def finish(settings: Settings, trainer: pl.Trainer, module: SBNModule, data: BinaryImages, folder: Path) -> None:
    """Test the best model and write result.json, which marks the run as finished."""
    score = _find(trainer, BestCheckpoint).best_model_score
    result: dict[str, Any] = {  # read before the test, which loads the best model's state
        "steps": trainer.global_step,
        "training_seconds": round(_find(trainer, TrainingClock).seconds, 3),
        "val/elbo": None if score is None else float(score),  # none without a validation
    }
    best = folder / (BEST if (folder / BEST).is_file() else LAST)
    (metrics,) = trainer.test(module, datamodule=data, ckpt_path=best, verbose=False)
    bounds = {name: value for name, value in metrics.items() if name != "step"}
    if trainer.enable_autolog_hparams:
        _log_hyperparameters(settings, trainer, bounds)
    if trainer.is_global_zero:
        write_result(folder, {**result, "best_step": load_run_checkpoint(best)["global_step"], **bounds})
        say(f"{folder} is finished. {_read_bound(folder)}")


def _find(trainer: pl.Trainer, kind: type[Part]) -> Part:
    return next(callback for callback in trainer.callbacks if isinstance(callback, kind))  # type: ignore[attr-defined]


def _log_hyperparameters(settings: Settings, trainer: pl.Trainer, bounds: Mapping[str, float]) -> None:
    """What TensorBoard compares runs by, once: a logger that is told it at the start does not know the bounds."""
    config: Config = settings.config
    data = config["data"].get("init_args", config["data"])
    hyperparameters = {
        "architecture": architecture_name(config["model"]["layers"]),
        "estimator": settings.estimator_name,
        "steps": config["trainer"]["max_steps"],
        "seed": config["seed_everything"],
        **{key: data[key] for key in ("batch_size", "binarization") if key in data},
        **{key: config["model"][key] for key in ("loss", "weight_decay")},
        "learning_rate": config["model"]["optimizer"]["init_args"].get("lr"),
    }
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(hyperparameters, dict(bounds), trainer.global_step)
        else:
            logger.log_hyperparams(hyperparameters)
        logger.save()


def _is_finished(folder: Path) -> bool:
    """Whether there is a result; a damaged one is computed again from the checkpoints, or refused without any."""
    try:
        return read_result(folder) is not None
    except ValueError as error:
        if not any((folder / name).is_file() for name in (LAST, BEST)):
            raise
        say(f"{error}; it is computed again from the run's checkpoints")
        return False


def _read_bound(folder: Path) -> str:
    result = read_result(folder)
    assert result is not None
    return f"test/elbo {result['test/elbo']:.2f} after {result['steps']} steps (best at {result['best_step']})"
