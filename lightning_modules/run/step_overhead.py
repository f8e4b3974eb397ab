"""Hooks of a step that a callback does not use are not called.

For every hook of every callback, used or not, Lightning enters a profiler's context: together a noticeable part of a
step of a few milliseconds. The contexts of a run that nobody profiles are empty.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.profilers import PassThroughProfiler

STEP_HOOKS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)


class RunCallback(pl.Callback):
    """A callback whose undefined step hooks are None, so that Lightning does not call them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for hook in STEP_HOOKS:
            if getattr(cls, hook) is getattr(pl.Callback, hook):
                setattr(cls, hook, None)


class NoProfiler(PassThroughProfiler):
    """Measures nothing, without entering and leaving a generator for it some 25 times per step."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        """An empty context, always the same."""
        return self._nothing
