"""result.json, which marks a run as finished: its bounds, and a digest so that a changed number is noticed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lightning_modules.run.folder import RESULT
from releg.files import write_atomically
from releg.records.runs import digest

NUMBERS = ("steps", "best_step", "training_seconds", "test/elbo", "test/multi_sample_bound")


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Write the result; FloatingPointError if a number is not finite."""
    if bad := [name for name in NUMBERS if not _is_finite(result[name])]:
        raise FloatingPointError(
            f"{', '.join(bad)} of {folder} is not finite, expected a number; continue with a lower learning rate"
        )
    text = json.dumps({**result, "digest": digest(result)}, indent=2, allow_nan=False)
    write_atomically(folder / RESULT, text + "\n")


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None if it is not finished, ValueError if it is damaged."""
    path = folder / RESULT
    if not path.is_file():
        return None
    try:
        result = json.loads(path.read_bytes())
    except ValueError:
        result = None
    is_whole = isinstance(result, dict) and all(_is_finite(result.get(name)) for name in NUMBERS)
    if not is_whole or result.pop("digest", None) != digest(result):
        raise ValueError(
            f"{path} is damaged, expected the result of a finished run; delete it, and releg fit computes it again"
        )
    return dict(result)


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
