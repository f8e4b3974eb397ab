"""What releg compare measures for one estimator. Each result is kept in a file, so an interrupted command continues."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from lightning_modules.bench.fresh_process import FreshProcess
from lightning_modules.bench.memory import request_for
from lightning_modules.bench.rounds import REFERENCE, Schedule, interleave, summary
from lightning_modules.bench.steps import Problem, make_step
from lightning_modules.command_line.console import showing
from lightning_modules.shipped_estimators import estimator_settings, read_estimator
from releg.estimators.base import Estimator
from releg.files import write_json
from releg.measure.bias_and_variance import ImageMoments, compare, reference_moments
from releg.measure.code import code_digest
from releg.measure.fitting import prepare
from releg.sbn import SigmoidBeliefNet

SCHEDULE = Schedule(rounds=8, steps=5, slow_rounds=3)
BATCH_SIZE = 100
REFERENCE_FACTOR = 10  # estimates in the long average for each one of an estimator

Row = dict[str, Any]


@dataclass(frozen=True)
class Amounts:
    """How much to measure."""

    num_images: int
    samples_per_image: int
    baseline_steps: int
    seed: int


class Comparer:
    """Measures estimators one by one at the same weights and images, and keeps each result in its own file."""

    def __init__(
        self,
        model: SigmoidBeliefNet,
        own: Estimator | None,
        images: Tensor,
        settings: Amounts,
        store: Path,
        process: FreshProcess,
    ) -> None:
        self.model = model
        self.own = own
        self.images = images
        self.settings = settings
        self.store = store
        self.process = process

    def row(self, name: str) -> Row:
        """All figures of that estimator, from its file if that was made with the same settings."""
        estimator = read_estimator(name)
        path = self.store / f"{Path(name).stem}.json"
        identity = self._identity(name, estimator)
        try:
            kept = json.loads(path.read_bytes())
            if kept.get("identity") == identity:
                return dict(kept["row"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # not there yet, or damaged: it is made again
        row = self._measure(name, estimator)
        self.store.mkdir(parents=True, exist_ok=True)
        write_json(path, {"identity": identity, "row": row})
        return row

    def _identity(self, name: str, estimator: Estimator) -> str:
        """A hash of all that the figures depend on, except the machine: weights, images, amounts, settings, code."""
        text = hashlib.blake2b(digest_size=16)
        for tensor in (state for part in (self.model, self.own) if part for state in part.state_dict().values()):
            text.update(tensor.numpy().tobytes())
        text.update(self.images[: self.settings.num_images].numpy().tobytes())
        text.update(repr((self.settings, estimator_settings(name))).encode())
        text.update(code_digest([estimator]))
        return text.hexdigest()

    def _measure(self, name: str, estimator: Estimator) -> Row:
        label, settings, started = Path(name).stem, self.settings, time.monotonic()
        ready = prepare({label: estimator}, self.own, self.model, self.images, settings.baseline_steps, settings.seed)[
            label
        ]
        reference = self._reference
        with self._progress(label) as move:
            found = compare(
                ready,
                self.model,
                self._chosen,
                settings.samples_per_image,
                reference,
                self._reference_samples,
                settings.seed,
                move,
            )
        cost = self._cost(name)
        return {
            "estimator": label,
            "unbiased": ready.unbiased,
            "objective": ready.objective,
            "evaluations": ready.evaluations(self.model),
            "samples": ready.samples,
            "architecture": self.model.architecture,
            **cost,
            **found.as_dict(),
            "num_images": settings.num_images,
            "samples_per_image": settings.samples_per_image,
            "seconds": round(time.monotonic() - started, 1),
        }

    @cached_property
    def _reference(self) -> list[ImageMoments]:
        with self._progress("long average of common random numbers") as move:
            return reference_moments(self.model, self._chosen, self._reference_samples, self.settings.seed, move)

    @property
    def _reference_samples(self) -> int:
        return REFERENCE_FACTOR * self.settings.samples_per_image

    @property
    def _chosen(self) -> Tensor:
        return self.images[: self.settings.num_images]

    def _progress(self, what: str) -> Any:
        return showing(what, self.settings.num_images, _tell)

    def _cost(self, name: str) -> Row:
        """Milliseconds of a training step, those of LR in the same rounds, and the step's memory."""
        weights = {key: value.clone() for key, value in self.model.state_dict().items()}
        problem = Problem(tuple(self.model.layers), weights, self.settings.seed)
        batches = [batch.to(self.model.mean) for batch in self.images.split(BATCH_SIZE)[:6]]
        steps = {REFERENCE: make_step(REFERENCE, problem), name: make_step(name, problem)}
        rounds = interleave(steps, batches, SCHEDULE, self.settings.seed)
        times, reference = summary(rounds, name), summary(rounds, REFERENCE)
        peak = self.process.peak_mib(request_for(name, problem, batches[0]))
        return {
            "ms_per_step": times["ms_per_step"],
            "lr_ms_per_step": reference["ms_per_step"],
            "ratio_to_lr": times["ratio_to_lr"],
            "peak_mib": peak,
        }


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
