"""A long measurement in parts: shared by several processes and kept part by part, so an interruption costs little."""

from __future__ import annotations

import inspect
import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import releg
from releg.checkpoint_file import digest
from releg.estimators.base import Estimator
from releg.measure.fitting import plain_settings
from releg.measure.moments import GradientVariances, Moments
from releg.measure.variance import collect_moments
from releg.sbn import SigmoidBeliefNet

PACKAGE = Path(releg.__file__).parent
IMAGES_PER_PART = 500


class Work(NamedTuple):
    """What to measure; the arguments of releg.measure.variance.measure."""

    estimators: Mapping[str, Estimator]
    model: SigmoidBeliefNet
    images: Tensor
    samples_per_image: int
    seed: int

    def parts(self) -> list[range]:
        """The images in parts."""
        count = len(self.images)
        return [range(first, min(first + IMAGES_PER_PART, count)) for first in range(0, count, IMAGES_PER_PART)]

    def moments(self, part: range, progress: Callable[[int], None] | None = None) -> Moments:
        """What is measured for one part."""
        return collect_moments(*self[:3], part, *self[3:], progress)

    def digest(self) -> str:
        """Equal only for the same measurement by the same code."""
        estimators = {
            name: (plain_settings(estimator), estimator.state_dict()) for name, estimator in self.estimators.items()
        }
        amounts = [self.samples_per_image, self.seed]
        content = [estimators, self.model.state_dict(), self.images, amounts, _code(self.estimators.values())]
        return digest(content)[:16]


_work: Work | None = None  # of a process that measures parts


def _code(estimators: Iterable[Estimator]) -> bytes:
    """The package's source and that of the estimators, which users may have written."""
    sources = {Path(source) for estimator in estimators if (source := inspect.getsourcefile(type(estimator)))}
    return b"".join(file.read_bytes() for file in sorted({*PACKAGE.rglob("*.py"), *sources}))


def measure_in_parts(
    work: Work, folder: Path, jobs: int, progress: Callable[[int], None]
) -> dict[str, GradientVariances]:
    """The gradient variances; parts that an earlier call left in the folder are not measured again.

    Args:
        work: what to measure.
        folder: for the parts; who calls deletes it, once the result is kept.
        jobs: processes that share the parts.
        progress: called with the number of images done since the last call.
    """
    parts = work.parts()
    if len(parts) == 1:
        return work.moments(parts[0], progress).variances()
    home = folder / work.digest()
    waiting = [part for part in parts if not _path(home, part).exists()]
    progress(sum(len(part) for part in parts if part not in waiting))
    for part in _measured(work, home, waiting, jobs):
        progress(len(part))
    return reduce(Moments.merged, (Moments.load(_path(home, part)) for part in parts)).variances()


def _measured(work: Work, home: Path, waiting: list[range], jobs: int) -> Iterator[range]:
    """Measure the parts, in processes of their own if there are several; yields each one when it is done."""
    if jobs == 1:
        for part in waiting:
            work.moments(part).save(_path(home, part))
            yield part
        return
    packed = io.BytesIO()
    torch.save(work, packed)
    arguments = packed.getvalue(), max(1, torch.get_num_threads() // jobs)
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start, arguments)
    try:
        measured = {pool.submit(_measure, home, part): part for part in waiting}
        for done in as_completed(measured):
            done.result()
            yield measured[done]
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process that measures was killed, expected it to finish; it may have had too little memory; the same "
            "command continues the measurement"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _start(packed: bytes, threads: int) -> None:
    """Make a new process ready to measure parts; one whose parent is gone would measure on for nobody."""
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    _work = torch.load(io.BytesIO(packed), weights_only=False)  # from the process that started this one


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _measure(home: Path, part: range) -> None:
    assert _work is not None
    _work.moments(part).save(_path(home, part))


def _path(home: Path, part: range) -> Path:
    return home / f"{part.start:06d}.pt"
