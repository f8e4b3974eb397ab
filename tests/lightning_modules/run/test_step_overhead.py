"""Hooks that a callback does not define are not entered; those that it defines are called as ever."""

from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.profilers import SimpleProfiler

from lightning_modules.run.life import make_trainer
from lightning_modules.run.step_overhead import STEP_HOOKS, NoProfiler, RunCallback
from lightning_modules.sbn_module import SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers
from tests.lightning_modules.small_data import small


class Counter(RunCallback):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.calls.append("start")

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Any) -> None:
        self.calls.append(str(pl_module._current_fx_name))


class Further(Counter):
    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        self.calls.append("end")


@pytest.mark.parametrize(
    ("kind", "defined"),
    [(Counter, {"on_before_backward"}), (Further, {"on_before_backward", "on_train_batch_end"})],
)
def test_only_defined_hooks_of_a_step_can_be_called(kind: type[Counter], defined: set[str]) -> None:
    assert {hook for hook in STEP_HOOKS if callable(getattr(kind, hook))} == defined


def test_defined_hooks_are_called_at_every_step_and_know_their_name() -> None:
    counter = Further()
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, max_steps=2, callbacks=[counter],
    )  # fmt: skip
    trainer.fit(SBNModule([3], CommonRandomNumbers(), 12), datamodule=small())
    assert counter.calls == ["start", *["on_before_backward", "end"] * 2]


class Watched(SBNModule):
    ends = 0

    def on_train_batch_end(self, *args: Any) -> None:  # type: ignore[override]
        self.ends += 1


def test_a_module_of_ones_own_may_define_them_and_a_profiler_is_used_if_asked_for() -> None:
    settings = {"accelerator": "cpu", "devices": 1, "limit_val_batches": 0, "max_steps": 2}
    unprofiled: Any = make_trainer(settings)
    assert isinstance(unprofiled.profiler, NoProfiler)
    trainer: Any = make_trainer({**settings, "profiler": "simple"})
    module = Watched([3], CommonRandomNumbers(), 12)
    trainer.fit(module, datamodule=small())
    assert module.ends == 2
    assert isinstance(trainer.profiler, SimpleProfiler)
    assert len(trainer.profiler.recorded_durations["[LightningModule]Watched.on_train_batch_end"]) == 2
    assert "[LightningModule]Watched.on_before_backward" not in trainer.profiler.recorded_durations
