"""Checks of the options that releg variance and releg compare share."""

from __future__ import annotations

import argparse
from pathlib import Path


def check_amounts(options: argparse.Namespace, command: str) -> None:
    """Raise ValueError unless the amounts are sensible and the estimators have different names."""
    checks = [
        ("--num-images", options.num_images, options.num_images >= 2, "at least 2"),
        ("--samples-per-image", options.samples_per_image, options.samples_per_image >= 2, "at least 2"),
        ("--baseline-steps", options.baseline_steps, options.baseline_steps >= 0, "at least 0"),
    ]
    for name, value, fine, expected in checks:
        if not fine:
            raise ValueError(f"{name} is {value}, expected {expected}; see {command} --help")
    stems = [Path(name).stem for name in options.estimators]
    if len(set(stems)) < len(stems):
        raise ValueError(f"--estimators has {' '.join(stems)}, expected different names; rename one of the files")
