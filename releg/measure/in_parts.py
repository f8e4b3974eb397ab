"""A long measurement in parts: shared by several processes and kept part by part, so an interruption costs little."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from releg.estimators.base import Estimator
from releg.measure.collected import Collected, GradientVariances
from releg.measure.variance import collect
from releg.sbn import SigmoidBeliefNet

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

    def collected(self, part: range, progress: Callable[[int], None] | None = None) -> Collected:
        """What is measured for one part."""
        return collect(self.estimators, self.model, self.images, part, self.samples_per_image, self.seed, progress)

    def digest(self) -> str:
        """Equal only for the same measurement."""
        weights = {name: estimator.state_dict() for name, estimator in self.estimators.items()}
        numbers = [*self.model.state_dict().values(), *(v for state in weights.values() for v in state.values())]
        content = [str((repr(self.estimators), self.samples_per_image, self.seed)).encode()]
        content += [bytes(tensor.cpu().contiguous().numpy().tobytes()) for tensor in (*numbers, self.images)]
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in content)).hexdigest()[:16]


def measure_in_parts(
    work: Work, folder: Path, jobs: int, progress: Callable[[int], None]
) -> dict[str, GradientVariances]:
    """The gradient variances; parts that an earlier call left in the folder are not measured again.

    Args:
        work: what to measure.
        folder: for the parts; it is deleted afterwards.
        jobs: processes that share the parts.
        progress: called with the number of images done since the last call.
    """
    parts = work.parts()
    if len(parts) == 1:
        return work.collected(parts[0], progress).variances()
    home = folder / work.digest()
    waiting = [part for part in parts if not _is_there(_path(home, part))]
    progress(sum(len(part) for part in parts if part not in waiting))
    for part in _measured(work, home, waiting, jobs):
        progress(len(part))
    whole = reduce(Collected.merged, (Collected.load(_path(home, part)) for part in parts))
    shutil.rmtree(folder)
    return whole.variances()


def _measured(work: Work, home: Path, waiting: list[range], jobs: int) -> Iterator[range]:
    """Measure the parts; yields each one when it is done."""
    if jobs == 1:
        for part in waiting:
            work.collected(part).save(_path(home, part))
            yield part
        return
    packed = io.BytesIO()
    torch.save(work, packed)
    threads = max(1, torch.get_num_threads() // jobs)
    with multiprocessing.get_context("spawn").Pool(jobs, _begin, (packed.getvalue(), threads)) as pool:
        yield from pool.imap_unordered(partial(_measure_here, home), waiting)


_work: Work  # of a process of the pool


def _begin(packed: bytes, threads: int) -> None:
    global _work  # the pool has no other place for what its tasks share
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    _work = torch.load(io.BytesIO(packed), weights_only=False)  # from the process that started this one


def _end_with_parent() -> None:
    """A process whose parent was killed would measure on for nobody."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _measure_here(home: Path, part: range) -> range:
    _work.collected(part).save(_path(home, part))
    return part


def _path(home: Path, part: range) -> Path:
    return home / f"{part.start:06d}.pt"


def _is_there(path: Path) -> bool:
    try:
        Collected.load(path)
    except ValueError:
        return False
    return True
