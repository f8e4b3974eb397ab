"""Hooks that nobody has written are not entered; those that somebody has are called as ever."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.profilers import SimpleProfiler

from lightning_modules.run.step_overhead import STEP_HOOKS, lighten
from lightning_modules.sbn_module import SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers
from tests.lightning_modules.small_data import small


class Counter(pl.Callback):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Any) -> None:
        self.calls.append(str(pl_module._current_fx_name))


class Watched(SBNModule):
    ends = 0

    def on_train_batch_end(self, *args: Any) -> None:
        self.ends += 1


def test_hooks_that_are_written_are_called_at_every_step_and_a_profiler_that_is_asked_for_is_used() -> None:
    counter, module = Counter(), Watched([3], CommonRandomNumbers(), 12)
    profilers: list[Any] = [None, SimpleProfiler()]
    for profiler in profilers:
        trainer = pl.Trainer(
            accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, limit_val_batches=0, max_steps=2, callbacks=[counter], profiler=profiler,
        )  # fmt: skip
        lighten(trainer, module)
        trainer.fit(module, datamodule=small())
    assert counter.calls == ["on_before_backward"] * 4
    assert module.ends == 4
    assert [hook for hook in STEP_HOOKS if callable(getattr(counter, hook))] == ["on_before_backward"]
    assert [hook for hook in STEP_HOOKS if callable(getattr(module, hook))] == ["on_train_batch_end"]
    durations = profilers[1].recorded_durations
    assert len(durations["[LightningModule]Watched.on_train_batch_end"]) == 2
    assert "[LightningModule]Watched.on_before_backward" not in durations
