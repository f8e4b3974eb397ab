"""Every argument of Lightning's Trainer acts in `releg fit`, or is refused with a sentence."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping, ModelSummary, ProgressBar, Timer
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.plugins.environments import SLURMEnvironment
from pytorch_lightning.profilers import SimpleProfiler

from lightning_modules.cli import RelegCLI
from lightning_modules.run.callbacks import RunProgressBar
from lightning_modules.run.checkpoints import SafeCheckpointIO
from lightning_modules.run.saving import BestCheckpoint, LastCheckpoint
from lightning_modules.run.trainer_settings import NOT_ZERO, REFUSED, adjusted
from tests.lightning_modules.commands_helper import fit

See = Callable[[Any], object]  # of a Trainer: something that is true if the argument has acted


def has(kind: type, where: str = "callbacks") -> See:
    return lambda trainer: any(isinstance(part, kind) for part in getattr(trainer, where))


def is_(name: str, value: object) -> See:
    return lambda trainer: getattr(trainer, name) == value


ACT: dict[str, tuple[str, See]] = {  # value on the command line, what is seen of it
    "accelerator": ("cpu", lambda trainer: type(trainer.accelerator).__name__ == "CPUAccelerator"),
    "strategy": ("ddp", lambda trainer: type(trainer.strategy).__name__ == "DDPStrategy"),
    "devices": ("2", is_("num_devices", 2)),
    "num_nodes": ("2", is_("num_nodes", 2)),
    "precision": ("64-true", is_("precision", "64-true")),
    "logger": ("pytorch_lightning.loggers.CSVLogger", lambda trainer: [*map(type, trainer.loggers)] == [CSVLogger]),
    "callbacks+": ("pytorch_lightning.callbacks.ModelSummary", has(ModelSummary)),
    "fast_dev_run": ("true", is_("fast_dev_run", 1)),
    "max_epochs": ("3", is_("max_epochs", 3)),
    "min_epochs": ("3", is_("min_epochs", 3)),
    "max_steps": ("7", is_("max_steps", 7)),
    "min_steps": ("7", is_("min_steps", 7)),
    "max_time": ("00:00:00:09", has(Timer)),
    **{f"limit_{kind}_batches": ("3", is_(f"limit_{kind}_batches", 3)) for kind in ("train", "val", "test", "predict")},
    "overfit_batches": ("3", is_("overfit_batches", 3)),
    "val_check_interval": ("5", is_("val_check_interval", 5)),
    "check_val_every_n_epoch": ("2", is_("check_val_every_n_epoch", 2)),
    "num_sanity_val_steps": ("1", is_("num_sanity_val_steps", 1)),
    "log_every_n_steps": ("5", is_("log_every_n_steps", 5)),
    "enable_progress_bar": ("false", lambda trainer: not has(ProgressBar)(trainer)),
    "enable_model_summary": ("true", has(ModelSummary)),
    "accumulate_grad_batches": ("2", is_("accumulate_grad_batches", 2)),
    "gradient_clip_val": ("0.5", is_("gradient_clip_val", 0.5)),
    "gradient_clip_algorithm": ("value", is_("gradient_clip_algorithm", "value")),
    "deterministic": ("warn", lambda trainer: os.environ.get("CUBLAS_WORKSPACE_CONFIG")),
    "benchmark": ("true", lambda trainer: __import__("torch").backends.cudnn.benchmark),
    "inference_mode": ("false", lambda trainer: not trainer.test_loop.inference_mode),
    "profiler": ("simple", lambda trainer: isinstance(trainer.profiler, SimpleProfiler)),
    "detect_anomaly": ("true", is_("_detect_anomaly", True)),
    "plugins+": (
        "pytorch_lightning.plugins.environments.SLURMEnvironment",
        lambda trainer: isinstance(trainer._accelerator_connector.cluster_environment, SLURMEnvironment),
    ),
    "reload_dataloaders_every_n_epochs": ("2", lambda trainer: trainer.fit_loop._combined_loader is None),
    "enable_autolog_hparams": ("false", is_("enable_autolog_hparams", False)),
}
REFUSED_WORDS = {
    "default_root_dir": "elsewhere",
    "enable_checkpointing": "false",
    "use_distributed_sampler": "false",
    "sync_batchnorm": "true",
    "model_registry": "mine",
    "barebones": "true",  # by Lightning, since base.yaml lists loggers
}


POSITIVE = (*NOT_ZERO, "limit_test_batches")


class Built(RelegCLI):
    """Everything but the training."""

    def _run_subcommand(self, subcommand: str) -> None:
        pass


def built(folder: Path, *arguments: str) -> pl.Trainer:
    _, *words = fit(folder, "--trainer.accelerator", "cpu", *arguments)
    return Built("fit", words).trainer


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what several ranks, and deterministic algorithms, put into the environment."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "RELEG_PARENT", "CUBLAS_WORKSPACE_CONFIG", "GLOO_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "put back afterwards")
        monkeypatch.delenv(name)


def test_every_argument_of_the_trainer_is_known() -> None:
    names = set(inspect.signature(pl.Trainer.__init__).parameters) - {"self"}
    assert names == {name.rstrip("+") for name in ACT} | set(REFUSED_WORDS)
    assert set(REFUSED) < set(REFUSED_WORDS)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> pl.Trainer:
    return built(tmp_path_factory.mktemp("usual"))


@pytest.mark.parametrize("name", ACT)
def test_an_argument_acts(name: str, usual: pl.Trainer, tmp_path: Path) -> None:
    value, see = ACT[name]
    is_default = name in ("accelerator", "reload_dataloaders_every_n_epochs")  # here, or until training starts
    assert is_default or not see(usual)
    more = ["--trainer.gradient_clip_val", "1"] if name == "gradient_clip_algorithm" else []
    assert see(built(tmp_path, *more, f"--trainer.{name}={value}"))


@pytest.mark.parametrize("name", REFUSED_WORDS)
def test_an_argument_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{name}.*(expected|was passed)"):
        built(tmp_path, f"--trainer.{name}={REFUSED_WORDS[name]}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--trainer.plugins", "pytorch_lightning.plugins.io.AsyncCheckpointIO"], "trainer has no SafeCheckpointIO"),
        (["--trainer.val_check_interval", "null"], "trainer.val_check_interval is null, expected a value"),
        *((["--trainer." + name, "0"], f"trainer.{name} is 0, expected a positive number") for name in POSITIVE),
        (
            ["--trainer.callbacks", "pytorch_lightning.callbacks.ModelSummary"],
            "trainer has no BestCheckpoint, expected all of base.yaml and your own",
        ),
    ],
)
def test_what_would_fail_after_training_is_refused_before(arguments: list[str], expected: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=expected):
        built(tmp_path, *arguments)
    assert not list(tmp_path.rglob("config.yaml"))


def test_parts_are_added_to_those_of_every_run(tmp_path: Path) -> None:
    stopping = "--trainer.callbacks+=pytorch_lightning.callbacks.EarlyStopping"
    added = ["--trainer.logger+=pytorch_lightning.loggers.CSVLogger", stopping, "--trainer.callbacks.monitor=val/elbo"]
    trainer: Any = built(
        tmp_path, *added, "--trainer.plugins+=pytorch_lightning.plugins.environments.LightningEnvironment"
    )
    assert [type(logger).__name__ for logger in trainer.loggers] == ["MetricsCSV", "RunTensorBoard", "CSVLogger"]
    assert trainer.loggers[2].save_dir == trainer.default_root_dir
    assert has(EarlyStopping)(trainer)
    assert isinstance(trainer.strategy.checkpoint_io, SafeCheckpointIO)


def test_a_progress_bar_of_the_users_takes_the_place_of_the_runs() -> None:
    given = [RunProgressBar(), BestCheckpoint(), LastCheckpoint(), ProgressBar()]
    names = ("enable_progress_bar", "logger", "val_check_interval")
    settings = {"callbacks": given, "plugins": SafeCheckpointIO(), "max_steps": 3, **dict.fromkeys(names)}
    assert adjusted(settings)["callbacks"] == given[1:]
