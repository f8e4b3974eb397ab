"""What the two studies of the library share: steps timed in CPU seconds, and a file to which measurements are added.

CPU seconds of one thread are counted, which other processes disturb less than those on the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import torch

from lightning_modules import RESULTS
from lightning_modules.run.provenance import provenance, without_command
from releg.files import write_json

ROUNDS, WARM_UP, STEPS = 3, 2, 7  # how often each way takes its turn, and its steps in a turn
PARTS = ("times", "variances", "training")  # methods of a study of one model, which measure
Step = Callable[[], object]


@dataclass
class Timed:
    """Training steps, and the CPU seconds that each of them took."""

    step: Step
    seconds: list[float] = field(default_factory=list)

    def __call__(self) -> None:
        """One step."""
        start = time.process_time()
        self.step()
        self.seconds.append(time.process_time() - start)

    def until(self, seconds: float) -> None:
        """Go on until all steps together have taken that long."""
        while sum(self.seconds) < seconds:
            self()


def milliseconds(ways: Mapping[str, Callable[[], Step]]) -> dict[str, float]:
    """The median time of a step of each way, given by what prepares it; they take turns."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, prepare in ways.items():
            timed = Timed(prepare())
            for _ in range(WARM_UP + STEPS):
                timed()
            taken[name] += timed.seconds[WARM_UP:]
    return {name: 1000 * statistics.median(seconds) for name, seconds in taken.items()}


def parser_of(description: str | None, models: Iterable[str]) -> argparse.ArgumentParser:
    """The command line: which parts of which models to measure, and where to write."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(models), default=list(models))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    where = "folder to write to; numbers of other models and parts are kept there"
    parser.add_argument("--results", type=Path, default=RESULTS, help=where)
    return parser


def measure_all(
    options: argparse.Namespace, name: str, study: Callable[[str], object], settings: Mapping[str, Any]
) -> None:
    """Measure on one thread, and add the numbers to a file after each part.

    Args:
        options: of the command line.
        name: of the file, in the results folder.
        study: of a model, with a method for each of PARTS.
        settings: what the study's page says about how it measures; numbers of other settings leave the file.
    """
    torch.set_num_threads(1)
    file = options.results / name
    for model, part in product(options.models, options.parts):
        numbers = getattr(study(model), part)()
        report = json.loads(file.read_bytes()) if file.is_file() else {}
        if report.get("settings") != settings:  # then earlier numbers are not what the page says of them
            report = {"settings": settings, "provenance": {}, "models": {}}
        report["provenance"][f"{model} {part}"] = without_command(provenance())
        report["models"].setdefault(model, {})[part] = numbers
        write_json(file, report)
