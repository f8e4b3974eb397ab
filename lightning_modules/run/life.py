"""The life of a run: opened, continued where it stopped, finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytorch_lightning as pl
from pytorch_lightning.loggers import TensorBoardLogger

from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.console import say
from lightning_modules.run import ranks
from lightning_modules.run.callbacks import TrainingClock
from lightning_modules.run.checkpoints import BEST, LAST, find_newest, load_run_checkpoint
from lightning_modules.run.folder import await_run_folder, claimed_run_folder
from lightning_modules.run.identity import OF_EVALUATION, check_fits, check_ranks, check_settings, settings_of
from lightning_modules.run.provenance import PROVENANCE
from lightning_modules.run.result import read_result, write_result
from lightning_modules.run.saving import BestCheckpoint
from lightning_modules.run.settings import Settings
from lightning_modules.sbn_module import SBNModule
from releg.records.file_names import CONFIG

FIX = "use the config.yaml of the checkpoint's run"
Identity = Mapping[str, Any]
Part = TypeVar("Part", bound=pl.Callback)


@contextmanager
def opened(settings: Settings) -> Iterator[Path]:
    """The run's folder, which this process holds; a run that could not begin leaves no config behind.

    SystemExit, with exit code 0, if the run is finished already.
    """
    if not ranks.is_first():
        yield await_run_folder(settings)
        return
    with claimed_run_folder(settings) as folder:
        if read_result(folder) is not None:
            say(f"{folder} is finished already; nothing to do. {_read_bound(folder)}")
            raise SystemExit(0)
        try:
            yield folder
        finally:
            if not (folder / PROVENANCE).is_file():
                (folder / CONFIG).unlink(missing_ok=True)


def find_start(folder: Path, identity: Identity, module: SBNModule) -> tuple[Path | None, int]:
    """The run's newest checkpoint, if it has one, and its step."""

    def check(checkpoint: dict[str, Any]) -> None:
        check_fits(checkpoint, identity, module.state_dict(), FIX)
        check_settings(checkpoint, identity, FIX)

    found = find_newest(folder, check)
    if found is None:
        return None, 0
    path, checkpoint = found
    check_ranks(checkpoint, identity, FIX)
    say(f"continuing {folder} from {path.name}")
    return path, checkpoint["global_step"]


def check_for_evaluation(path: str | None, identity: Identity, module: SBNModule, command: str) -> int:
    """The step of the checkpoint that is evaluated; ValueError if there is none, or if it is of another net."""
    if not path:
        raise ValueError(f"releg {command} got no checkpoint, expected --ckpt PATH; name a run's best.ckpt")
    checkpoint = load_run_checkpoint(Path(path))
    check_fits(checkpoint, identity, module.state_dict(), FIX)
    check_settings(checkpoint, identity, FIX, OF_EVALUATION)
    return int(checkpoint["global_step"])


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
        for logger in trainer.loggers:  # only now, since TensorBoard compares runs by the bounds
            measured = [bounds, trainer.global_step] if isinstance(logger, TensorBoardLogger) else []
            logger.log_hyperparams(settings_of(settings.config), *measured)
            logger.save()
    if trainer.is_global_zero:
        write_result(folder, {**result, "best_step": load_run_checkpoint(best)["global_step"], **bounds})
        say(f"{folder} is finished. {_read_bound(folder)}")


def _find(trainer: pl.Trainer, kind: type[Part]) -> Part:
    return next(callback for callback in trainer.callbacks if isinstance(callback, kind))  # type: ignore[attr-defined]


def _read_bound(folder: Path) -> str:
    result = read_result(folder)
    assert result is not None
    return f"test/elbo {result['test/elbo']:.2f} after {result['steps']} steps (best at {result['best_step']})"
