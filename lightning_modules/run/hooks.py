"""Hooks of a step that a callback does not use are not called.

For every hook of every callback, used or not, Lightning enters a profiler's context: together a noticeable part of a
step of a few milliseconds.
"""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

STEP_HOOKS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)


class RunCallback(pl.Callback):
    """A callback that is not called at the hooks of a step that it does not define: there they are None."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for hook in STEP_HOOKS:
            if getattr(cls, hook) is getattr(pl.Callback, hook):
                setattr(cls, hook, None)
