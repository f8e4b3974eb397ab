"""A measurement in parts gives what one in a single piece gives, whoever measures the parts, however often it stops."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.measure import parts
from releg.measure.moments import GradientVariances
from releg.measure.parts import Work, measure_in_parts
from releg.measure.variance import measure
from tests.environment import ROOT
from tests.processes import end_all
from tests.releg.helpers import random_model

IMAGES, SAMPLES = 23, 40


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(parts, "IMAGES_PER_PART", 6)
    model = random_model(3, [4, 2], dtype=torch.float32)
    lr = LikelihoodRatio([])
    lr.attach(model, torch.Generator())
    images = torch.randint(2, (IMAGES, 3), generator=torch.Generator().manual_seed(2))
    return Work({"lr": lr, "crn": CommonRandomNumbers("batched")}, model, images, SAMPLES, 5)


def assert_same(one: dict[str, GradientVariances], other: dict[str, GradientVariances]) -> None:
    assert one.keys() == other.keys()
    for name, result in one.items():
        for mine, theirs in zip(result.layers, other[name].layers, strict=True):
            assert mine.keys() == theirs.keys()
            for kind, number in mine.items():
                assert number.value == pytest.approx(theirs[kind].value, rel=1e-9)
                assert number.standard_error == pytest.approx(theirs[kind].standard_error, rel=1e-6)


def whole(work: Work) -> dict[str, GradientVariances]:
    return measure(work.estimators, work.model, work.images, work.samples_per_image, work.seed)


def test_parts_add_up_to_the_whole(work: Work, tmp_path: Path) -> None:
    done: list[int] = []
    assert_same(measure_in_parts(work, tmp_path / "parts", 1, done.append), whole(work))
    assert sum(done) == IMAGES


def test_parts_of_an_interrupted_measurement_are_kept(work: Work, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(images: int) -> None:
        if len(list((tmp_path / "parts").rglob("*.pt"))) == 3:
            raise StopError

    with pytest.raises(StopError):
        measure_in_parts(work, tmp_path / "parts", 1, stop)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").rglob("*.pt")}
    seen: list[int] = []
    assert_same(measure_in_parts(work, tmp_path / "parts", 1, seen.append), whole(work))
    assert seen == [18, 5]  # three parts were there
    assert {path: path.stat().st_mtime_ns for path in before} == before


ANOTHER: dict[str, dict[str, Any]] = {
    "seed": {"seed": 6},
    "samples": {"samples_per_image": SAMPLES + 1},
    "setting": {"estimators": {"lr": LikelihoodRatio([]), "crn": CommonRandomNumbers("batched")}},
}


@pytest.mark.parametrize("changed", ANOTHER.values(), ids=list(ANOTHER))
def test_parts_of_another_measurement_are_not_taken(changed: dict[str, Any], work: Work, tmp_path: Path) -> None:
    other = work._replace(**changed)
    for part in other.parts():
        other.moments(part).save(tmp_path / "parts" / other.digest() / f"{part.start:06d}.pt")
    assert_same(measure_in_parts(work, tmp_path / "parts", 1, lambda images: None), whole(work))


def test_parts_by_other_code_are_not_taken(work: Work, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = work.digest()
    monkeypatch.setattr(parts, "PACKAGE", tmp_path)
    assert work.digest() != before


@pytest.mark.long
def test_several_processes_give_the_same(work: Work, tmp_path: Path) -> None:
    assert_same(measure_in_parts(work, tmp_path / "parts", 2, lambda images: None), whole(work))


ENDLESS = """
import os
from pathlib import Path

import torch

from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.measure import parts
from releg.sbn import SigmoidBeliefNet

if __name__ == "__mp_main__":
    Path(f"{os.getpid()}.worker").touch()
if __name__ == "__main__":
    parts.IMAGES_PER_PART = 1
    images = torch.ones(9, 3)
    work = parts.Work({"crn": CommonRandomNumbers("batched")}, SigmoidBeliefNet(3, [4, 2]), images, 10**8, 0)
    parts.measure_in_parts(work, Path("parts"), 2, lambda images: None)
"""


@contextmanager
def endless(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A measurement that does not end by itself, and the ids of its processes."""
    (folder / "endless.py").write_text(ENDLESS)
    paths = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "endless.py"], cwd=folder, env=paths, stderr=subprocess.PIPE, text=True)
    workers: list[int] = []
    deadline = time.monotonic() + 120
    while len(workers) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
        workers = [int(file.stem) for file in folder.glob("*.worker")]
    assert len(workers) == 2
    try:
        yield process, workers
    finally:
        process.kill()
        left = end_all(workers, patience=30)
    assert left == 0


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_the_one_that_started_them(number: signal.Signals, tmp_path: Path) -> None:
    with endless(tmp_path) as (process, _):
        process.send_signal(number)
        process.wait(20)


@pytest.mark.long
def test_a_killed_process_ends_the_measurement_with_a_sentence(tmp_path: Path) -> None:
    with endless(tmp_path) as (process, workers):
        os.kill(workers[0], signal.SIGKILL)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "a process that measures was killed, expected it to finish" in said
