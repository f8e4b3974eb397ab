"""What Lightning does around the hooks of a step, as far as it can be spared.

For every hook of every callback, used or not, Lightning enters a profiler's context, and it notes the name of every
hook in the module by nn.Module's slow assignment: together a noticeable part of a step of a few milliseconds.
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


class QuickNotes(pl.LightningModule):
    """A module in which the name of the current hook is noted as in any Python object."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_current_fx_name":
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)
