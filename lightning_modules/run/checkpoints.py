"""Checkpoints that survive: written atomically, carrying their own digest, loaded without running code."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO

from lightning_modules.command_line.console import say
from releg.checkpoint_file import DIGEST, digest, read
from releg.files import write_atomically

BEST, LAST = "best.ckpt", "last.ckpt"


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes to a temporary name, syncs and renames. Refuses files that are damaged or contain code."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write the checkpoint with its digest; the name appears only when the file is whole."""
        content = io.BytesIO()
        torch.save({**checkpoint, DIGEST: digest(checkpoint)}, content)
        write_atomically(Path(path), content.getvalue())

    def load_checkpoint(
        self, path: str | Path, map_location: Callable[..., Any] | None = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        """The checkpoint, on the CPU; always loaded with weights_only, whatever the caller asks."""
        return load_run_checkpoint(Path(path))


def load_run_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint of a run; ValueError, with a sentence, unless it is whole and was written by releg fit."""
    checkpoint = read(path, needs_digest=True)
    if not all(isinstance(checkpoint.get(part), dict) for part in ("identity", "state_dict")):
        raise ValueError(
            f"{path} has no identity or no weights, expected the checkpoint of a run; use one written by releg fit"
        )
    return checkpoint


def find_newest(folder: Path, check: Callable[[dict[str, Any]], None]) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that a run can be continued from, and its content.

    Damaged ones, and those of another run, are reported and skipped. If the best model is lost that the last checkpoint
    knows of, the run starts anew and finds it again.

    Args:
        folder: of the run.
        check: raises ValueError if a checkpoint is not of this run.
    """
    last, best = (_usable(folder / name, check) for name in (LAST, BEST))
    if last and not best and any(state.get("best_model_score") is not None for state in last["callbacks"].values()):
        say(f"{folder / BEST} is missing or damaged, expected the best model so far; its steps are trained again")
        return None
    return (folder / LAST, last) if last else (folder / BEST, best) if best else None


def _usable(path: Path, check: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
    """A checkpoint; if it is damaged or of another run, say so and return None."""
    if not path.is_file():
        return None
    try:
        checkpoint = load_run_checkpoint(path)
        check(checkpoint)
    except ValueError as error:
        say(f"{path} cannot be continued: {error}; skipped")
        return None
    return checkpoint
