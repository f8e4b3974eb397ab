"""How far a run is, in a small file for the process that started it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import NamedTuple

import pytorch_lightning as pl

from lightning_modules.grid.process import PROGRESS_VARIABLE
from lightning_modules.sbn_module import SBNModule

SECONDS_BETWEEN_WRITES = 1.0


class Progress(NamedTuple):
    """What the file says."""

    step: int
    elbo: float | None  # of the last batch


class ProgressFile(pl.Callback):
    """Writes the file about once a second."""

    def __init__(self) -> None:
        self._path = os.environ.get(PROGRESS_VARIABLE)
        self._last = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A continued run starts further on."""
        self._write(trainer, None)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: object) -> None:
        """The elbo is read from the device only when it is written."""
        if self._path and time.monotonic() - self._last > SECONDS_BETWEEN_WRITES:
            elbo = pl_module.train_elbo if isinstance(pl_module, SBNModule) else None
            self._write(trainer, None if elbo is None else float(elbo))

    def _write(self, trainer: pl.Trainer, elbo: float | None) -> None:
        if self._path and trainer.is_global_zero:
            self._last = time.monotonic()
            path = Path(self._path)
            temporary = path.with_name(f".{path.name}.part")
            with contextlib.suppress(OSError):  # training does not end because its display cannot be fed
                temporary.write_text(json.dumps(Progress(trainer.global_step, elbo)._asdict()))
                temporary.replace(path)


def read_progress(path: Path) -> Progress | None:
    """What the file says; none if there is no file yet."""
    try:
        return Progress(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
