"""Hooks that a callback does not define are not entered; those that it defines are called as ever."""

from typing import Any

import pytest
import pytorch_lightning as pl

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.hooks import STEP_HOOKS, RunCallback
from lightning_modules.sbn_module import SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers


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
    trainer.fit(SBNModule([3], CommonRandomNumbers(), 784), datamodule=BinarizedMNIST(batch_size=10))
    assert counter.calls == ["start", *["on_before_backward", "end"] * 2]
