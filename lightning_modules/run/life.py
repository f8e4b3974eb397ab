"""The life of a run: opened, continued where it stopped, trained, tested, finished."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger, TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_modules.command_line.console import EndedEarlyError, say
from lightning_modules.run import ranks
from lightning_modules.run.callbacks import ImageGrids, ProgressFile, StepProgress, TrainingClock
from lightning_modules.run.checkpoints import (
    BEST,
    LAST,
    PREVIOUS,
    RunCheckpoint,
    SafeCheckpointIO,
    find_newest,
    load_run_checkpoint,
)
from lightning_modules.run.csv_files import MetricsCSV, MetricsRewinder
from lightning_modules.run.folder import await_run_folder, claimed_run_folder
from lightning_modules.run.identity import (
    OF_EVALUATION,
    check_fits,
    check_ranks,
    check_settings,
    differences,
    identity_of,
)
from lightning_modules.run.provenance import PROVENANCE, record_provenance
from lightning_modules.run.result import read_result, write_result
from lightning_modules.run.settings import Built, Config, Settings
from lightning_modules.run.signals import Signals
from lightning_modules.run.step_overhead import NoProfiler
from lightning_modules.run.tensorboard import RunTensorBoard
from lightning_modules.sbn_module import check_precision
from releg.architecture import architecture_name
from releg.records.file_names import CONFIG, RESULT

INTERRUPTED = 130  # exit code: 128 + SIGINT
UNFINISHED = 75  # exit code: try again later
FIX = "use the config.yaml of the checkpoint's run"


class Start(NamedTuple):
    """The checkpoint that a run continues from."""

    path: Path
    step: int
    is_own: bool  # or another run's, which the user named


def run(command: str, arguments: list[str]) -> int:
    """Fit, validate or test. Returns the exit code."""
    if command == "fit":
        with Signals() as signals:
            fit(Settings(command, arguments), signals)
    else:
        evaluate(Settings(command, arguments))
    return 0


def fit(settings: Settings, signals: Signals) -> None:
    """Train, from the newest whole checkpoint of the same run if there is one; then test the best model."""
    pl.seed_everything(settings.config["seed_everything"], workers=True)
    built = settings.build()
    if settings.config["trainer"].get("fast_dev_run"):
        trainer = make_trainer(built.trainer)
        trainer.callbacks.extend([TrainingClock(), StepProgress()])  # type: ignore[attr-defined]
        trainer.fit(built.module, datamodule=built.data, **built.method)
        return
    with _open(settings) as folder:
        if _is_finished(folder):
            say(f"{folder} is finished already; nothing to do. {_read_bound(folder)}")
            return
        _train(settings, built, folder, signals)


def evaluate(settings: Settings) -> None:
    """Validate or test the weights of a checkpoint, and print the bounds."""
    path = settings.config.get("ckpt_path")
    if not path:
        raise ValueError(f"releg {settings.command} got no checkpoint, expected --ckpt PATH; name a run's best.ckpt")
    pl.seed_everything(settings.config["seed_everything"], workers=True)
    built = settings.build()
    trainer = make_trainer(built.trainer)
    checkpoint = load_run_checkpoint(Path(path))
    identity = identity_of(settings.config, built.module, built.data)
    check_fits(checkpoint, identity, built.module.state_dict(), FIX)
    check_settings(checkpoint, identity, FIX, OF_EVALUATION)
    evaluated = getattr(trainer, settings.command)
    (metrics,) = evaluated(built.module, datamodule=built.data, **{**built.method, "verbose": False})
    if trainer.is_global_zero:
        print(f"{path}, step {checkpoint['global_step']}:")
        for name, value in metrics.items():
            if name != "step":
                print(f"{name} {value:.4f}")


def make_trainer(settings: Mapping[str, Any], folder: Path | None = None, loggers: Sequence[Logger] = ()) -> pl.Trainer:
    """A Trainer with these arguments. Only the loggers and callbacks write anything, and only to the folder."""
    check_precision(settings.get("precision"))
    ours = {
        "default_root_dir": None if folder is None else str(folder),
        "plugins": [SafeCheckpointIO()],
        "logger": list(loggers),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "num_sanity_val_steps": 0,
        "profiler": settings.get("profiler") or NoProfiler(),
    }
    trainer = pl.Trainer(**{**settings, **ours})
    ranks.share_machine(trainer)
    return trainer


def make_loggers(folder: Path, start: Start | None = None) -> list[Logger]:
    """Loggers of metrics.csv and of TensorBoard, which hides what was logged after the start's checkpoint."""
    purge_step = start.step + 1 if start else None
    metrics = MetricsCSV(folder, continues=start is not None and start.is_own)
    return [metrics, RunTensorBoard(folder, name="", version="", purge_step=purge_step)]


def training_callbacks(
    identity: Mapping[str, Any], minutes: float, signals: Signals, module_settings: Mapping[str, Any] | None = None
) -> tuple[TrainingClock, RunCheckpoint, list[pl.Callback]]:
    """The clock, the keeper of checkpoints, and all callbacks of a run in the order of their calls."""
    clock, keeper = TrainingClock(signals), RunCheckpoint(identity, minutes, signals, module_settings)
    return clock, keeper, [clock, MetricsRewinder(), StepProgress(), ProgressFile(), ImageGrids(), keeper]


@contextmanager
def _open(settings: Settings) -> Iterator[Path]:
    """The run's folder, which this process holds; a run that could not begin leaves no config behind."""
    if not ranks.is_first():
        yield await_run_folder(settings)
        return
    with claimed_run_folder(settings) as folder:
        try:
            yield folder
        finally:
            if not any((folder / name).is_file() for name in (PROVENANCE, RESULT, LAST, BEST)):
                (folder / CONFIG).unlink(missing_ok=True)


def _train(settings: Settings, built: Built, folder: Path, signals: Signals) -> None:
    given = {**built.trainer, "val_check_interval": _at_most(built.trainer)}
    trainer = make_trainer(given, folder)
    changes = _record(settings, built, folder)
    identity = identity_of(settings.config, built.module, built.data, trainer.num_devices * trainer.num_nodes)
    start = _find_start(built, folder, identity)
    trainer.loggers = make_loggers(folder, start)
    module_settings = {**settings.config["model"], "data_size": built.module.model.data_size}
    minutes = settings.checkpoint_minutes
    clock, keeper, callbacks = training_callbacks(identity, minutes, signals, module_settings)
    trainer.callbacks.extend(callbacks)  # type: ignore[attr-defined]
    if start:
        keeper.inherits_best = start.is_own
        say(f"continuing {folder} from {start.path.name}")
        if changes:
            say(f"resuming with {changes}; the result may differ from an uninterrupted run's")
    method = {**built.method, "ckpt_path": start.path if start else None}
    try:
        trainer.fit(built.module, datamodule=built.data, **method)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != 1:  # 1 is what Lightning makes of Ctrl-C
            raise
        raise EndedEarlyError(f"interrupted; {_how_to_go_on(keeper, start)}", INTERRUPTED) from None
    if trainer.global_step < trainer.max_steps:
        raise EndedEarlyError(
            f"{folder} is not finished: training stopped at step {trainer.global_step} of {trainer.max_steps} "
            "(max_time or max_epochs); the same command continues it",
            UNFINISHED,
        )
    _finish(settings, built, trainer, folder, clock, keeper)


@rank_zero_only
def _record(settings: Settings, built: Built, folder: Path) -> str:
    """Record the process; returns what has changed since another one worked on the run."""
    return record_provenance(folder, built.data.checksum, settings.config)


def _find_start(built: Built, folder: Path, identity: Mapping[str, Any]) -> Start | None:
    """The run's own newest checkpoint or, if it has none yet, the one that the user names, if it fits."""
    weights = built.module.state_dict()

    def check(checkpoint: dict[str, Any]) -> None:
        check_fits(checkpoint, identity, weights, FIX)
        check_settings(checkpoint, identity, FIX)

    found = find_newest(folder, check)
    if found is not None:
        path, checkpoint = found
    elif built.method["ckpt_path"]:
        path = Path(built.method["ckpt_path"])
        checkpoint = load_run_checkpoint(path)
        check_fits(checkpoint, identity, weights, FIX)
        others = differences(checkpoint["identity"].get("settings", identity["settings"]), identity["settings"])
        for key, (there, here) in others.items():
            say(f"{path} was trained with {key} {there}; from here on it is {here}")
    else:
        return None
    check_ranks(checkpoint, identity, FIX)
    return Start(path, checkpoint["global_step"], is_own=found is not None)


def _how_to_go_on(keeper: RunCheckpoint, start: Start | None) -> str:
    saved = keeper.saved_step if keeper.saved_step >= 0 else start.step if start and start.is_own else 0
    if not saved:
        return "nothing was saved; the same command starts over"
    return f"step {saved} is saved, and the same command continues from there"


def _finish(
    settings: Settings, built: Built, trainer: pl.Trainer, folder: Path, clock: TrainingClock, keeper: RunCheckpoint
) -> None:
    """Test the best model and write result.json, which marks the run as finished."""
    result: dict[str, Any] = {  # read before the test, which loads the best model's state
        "steps": trainer.global_step,
        "best_step": keeper.best_step,
        "training_seconds": round(clock.seconds, 3),
        "val/elbo": keeper.best_elbo if math.isfinite(keeper.best_elbo) else None,  # none without a validation
    }
    best = folder / (BEST if (folder / BEST).is_file() else LAST)
    (metrics,) = trainer.test(built.module, datamodule=built.data, ckpt_path=best, verbose=False)
    result.update({name: value for name, value in metrics.items() if name != "step"})
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(_hyperparameters(settings), dict(metrics))
            logger.save()
    if trainer.is_global_zero:
        write_result(folder, result)
        say(f"{folder} is finished. {_read_bound(folder)}")


def _hyperparameters(settings: Settings) -> dict[str, Any]:
    """What TensorBoard compares runs by."""
    config: Config = settings.config
    data = config["data"].get("init_args", config["data"])
    return {
        "architecture": architecture_name(config["model"]["layers"]),
        "estimator": settings.estimator_name,
        "steps": config["trainer"]["max_steps"],
        "seed": config["seed_everything"],
        **{key: data[key] for key in ("batch_size", "binarization") if key in data},
        **{key: config["model"][key] for key in ("loss", "weight_decay")},
        "learning_rate": config["model"]["optimizer"]["init_args"].get("lr"),
    }


def _is_finished(folder: Path) -> bool:
    """Whether there is a result; a damaged one is computed again from the checkpoints, or refused without any."""
    try:
        return read_result(folder) is not None
    except ValueError as error:
        if not any((folder / name).is_file() for name in (LAST, PREVIOUS)):
            raise
        say(f"{error}; it is computed again from the run's checkpoints")
        return False


def _read_bound(folder: Path) -> str:
    result = read_result(folder)
    assert result is not None
    return f"test/elbo {result['test/elbo']:.2f} after {result['steps']} steps (best at {result['best_step']})"


def _at_most(trainer: Mapping[str, Any]) -> int | float | None:
    """The interval between validations; a run that is shorter still ends with one."""
    interval, steps = trainer["val_check_interval"], trainer["max_steps"]
    return min(interval, steps) if isinstance(interval, int) and steps > 0 else interval
