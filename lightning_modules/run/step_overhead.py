"""What Lightning does at every step and nobody needs; without it a step through the Trainer costs less.

For every hook of every callback, used or not, Lightning enters a profiler's context and formats its name.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.profilers import PassThroughProfiler
from torch import Tensor

STEP_HOOKS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)


def lighten(trainer: pl.Trainer, module: pl.LightningModule) -> None:
    """Skip the hooks of a step that nobody has written: Lightning calls only what is callable."""
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for each, base in ((module, pl.LightningModule), *((callback, pl.Callback) for callback in callbacks)):
        for hook in STEP_HOOKS:
            if getattr(type(each), hook) is getattr(base, hook):
                setattr(each, hook, None)


class NoProfiler(PassThroughProfiler):
    """Measures nothing, without entering and leaving a generator for it some 25 times per step."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        """An empty context, always the same."""
        return self._nothing


class LightModule(pl.LightningModule):
    """A LightningModule with less to do around a step."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_current_fx_name":  # Lightning sets it about 40 times per step, and nn.Module is slow at that
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def transfer_batch_to_device(self, batch: Tensor, device: torch.device, dataloader_idx: int) -> Tensor:
        """The batch there; Lightning's own would first look through it for tensors, as if it could be anything."""
        return batch if batch.device == device else batch.to(device, non_blocking=True)
