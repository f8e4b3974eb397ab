"""Checkpoints as torch.save writes them, read without running code in them and compared with the digest they carry."""

from __future__ import annotations

import hashlib
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DIGEST = "digest"  # key of a checkpoint: a digest of everything else
UNREADABLE = (RuntimeError, EOFError, OSError, ValueError, LookupError, AttributeError, TypeError, struct.error)


class DamagedCheckpointError(ValueError):
    """The file is not a whole checkpoint of this program."""


def read(path: Path, needs_digest: bool = False) -> dict[str, Any]:
    """A checkpoint on the CPU; DamagedCheckpointError, with a sentence, unless it is whole and free of code.

    Args:
        path: of the file.
        needs_digest: refuse a checkpoint without a digest, which another program may have written.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}, expected a file; give the path of a best.ckpt")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DamagedCheckpointError(
            f"{path} holds something other than tensors and plain values, or is damaged; expected a checkpoint that "
            "loads without running code, so it was not loaded; use one written by this program"
        ) from error
    except UNREADABLE as error:
        raise DamagedCheckpointError(_damaged(path, "the file cannot be read")) from error
    if not isinstance(checkpoint, dict) or (needs_digest and DIGEST not in checkpoint):
        raise DamagedCheckpointError(_damaged(path, "it carries no digest"))
    if DIGEST in checkpoint and checkpoint.pop(DIGEST) != digest(checkpoint):
        raise DamagedCheckpointError(_damaged(path, "its content does not fit its digest"))
    return checkpoint


def _damaged(path: Path, why: str) -> str:
    return f"{path} is damaged ({why}), expected a whole checkpoint; use another one of its run, such as best.ckpt"


def digest(value: Any) -> str:
    """SHA-256 of a nest of dicts, lists, tensors and plain values."""
    sha = hashlib.sha256()
    for part in _bytes_of(value):
        sha.update(part)
    return sha.hexdigest()


def _bytes_of(value: Any) -> Iterator[bytes]:
    if isinstance(value, Tensor):
        yield f"tensor {value.dtype} {tuple(value.shape)}".encode()
        yield value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, dict):
        yield f"dict {len(value)}".encode()
        for key, inner in value.items():
            yield repr(key).encode()
            yield from _bytes_of(inner)
    elif isinstance(value, (list, tuple)):
        yield f"list {len(value)}".encode()
        for inner in value:
            yield from _bytes_of(inner)
    else:
        yield f"{type(value).__name__} {value!r}".encode()
