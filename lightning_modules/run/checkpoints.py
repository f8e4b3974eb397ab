"""Checkpoints that survive: written atomically, carrying their own digest, loaded without running code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from torch import Tensor

from lightning_modules.command_line.console import say
from lightning_modules.command_line.error_sentences import NO_ROOM, is_out_of_memory
from releg.checkpoint_file import DIGEST, DamagedCheckpointError, digest, read
from releg.files import replacing

BEST, LAST = "best.ckpt", "last.ckpt"
KNOWS_BEST = "knows_best"  # key of a checkpoint: whether there was a best model when it was saved
PARTS = {  # what Lightning and this project read from a checkpoint
    "state_dict": dict,
    "identity": dict,
    "global_step": int,
    "epoch": int,
    "loops": dict,
    "callbacks": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
    "pytorch-lightning_version": str,
}


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes to a temporary name, syncs and renames. Refuses files that are damaged or contain code."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write the checkpoint with its digest; the name appears only when the file is whole."""
        target = Path(path)
        try:
            with replacing(target) as file:
                torch.save({**checkpoint, DIGEST: digest(checkpoint)}, file)
        except (OSError, RuntimeError) as error:  # torch's writer turns the system's errors into its own
            if is_out_of_memory(error):
                raise
            cause = error.__context__ if isinstance(error.__context__, OSError) else error
            forbidden = isinstance(cause, OSError) and cause.errno is not None and cause.errno not in NO_ROOM
            wanted = "a file that can be written; change that" if forbidden else "room for it; free some disk space"
            raise OSError(
                f"cannot write {target} ({getattr(cause, 'strerror', None) or cause}), expected {wanted} and run the "
                "same command again; it resumes from the last checkpoint"
            ) from error

    def load_checkpoint(
        self, path: str | Path, map_location: Callable[..., Any] | None = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        """The checkpoint, on the CPU; always loaded with weights_only, whatever the caller asks."""
        return load_run_checkpoint(Path(path))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint that carries its digest; DamagedCheckpointError, with a sentence, unless it is whole."""
    return read(path, needs_digest=True)


def load_run_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint that has all parts of a run's; ValueError, with a sentence, if not."""
    checkpoint = load_checkpoint(path)
    bad = [name for name, kind in PARTS.items() if not isinstance(checkpoint.get(name), kind)]
    if not bad and not all(isinstance(value, Tensor) for value in checkpoint["state_dict"].values()):
        bad = ["state_dict"]
    if bad:
        raise ValueError(
            f"{path} has a missing or invalid {', '.join(bad)}, expected the checkpoint of a run; use one written by "
            "releg fit"
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
    found = {path: checkpoint for path in (folder / LAST, folder / BEST) if (checkpoint := _usable(path, check))}
    if folder / LAST in found and folder / BEST not in found and found[folder / LAST].get(KNOWS_BEST):
        say(f"{folder / BEST} is missing or damaged, expected the best model so far; its steps are trained again")
        return None
    newest = max(found, key=lambda path: found[path]["global_step"], default=None)
    return (newest, found[newest]) if newest else None


def _usable(path: Path, check: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
    """Load a checkpoint; if it is damaged or of another run, say so and return None."""
    if not path.is_file():
        return None
    try:
        checkpoint = load_run_checkpoint(path)
        check(checkpoint)
    except DamagedCheckpointError as error:
        say(f"{error}; skipped")
    except ValueError as error:
        say(f"{path} belongs to another run: {error}; skipped")
    else:
        return checkpoint
    return None
