"""A measurement in parts gives what one in a single piece gives, whoever measures the parts, however often it stops."""

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import torch

from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.measure import in_parts
from releg.measure.collected import GradientVariances
from releg.measure.in_parts import Work, measure_in_parts
from releg.measure.variance import measure
from tests.environment import ROOT
from tests.processes import end_all
from tests.releg.helpers import random_model

IMAGES, SAMPLES = 23, 40


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(in_parts, "IMAGES_PER_PART", 6)
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


def test_parts_add_up_to_the_whole_and_leave_nothing_behind(work: Work, tmp_path: Path) -> None:
    done: list[int] = []
    assert_same(measure_in_parts(work, tmp_path / "parts", 1, done.append), whole(work))
    assert sum(done) == IMAGES
    assert not list(tmp_path.iterdir())


def test_parts_of_an_interrupted_measurement_are_kept_and_damaged_ones_measured_again(
    work: Work, tmp_path: Path
) -> None:
    class StopError(Exception):
        pass

    def stop(images: int) -> None:
        if len(list((tmp_path / "parts").rglob("*.pt"))) == 3:
            raise StopError

    with pytest.raises(StopError):
        measure_in_parts(work, tmp_path / "parts", 1, stop)
    damaged, kept, changed = sorted((tmp_path / "parts").rglob("*.pt"))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    content = changed.read_bytes()
    with zipfile.ZipFile(changed) as archive:
        numbers = max((archive.read(name) for name in archive.namelist() if "/data/" in name), key=len)
    changed.write_bytes(content.replace(numbers, numbers[:7] + bytes([numbers[7] ^ 64]) + numbers[8:]))
    before = kept.stat().st_mtime_ns
    seen: list[int] = []

    def look(images: int) -> None:
        seen.append(images)
        assert kept.stat().st_mtime_ns == before

    assert_same(measure_in_parts(work, tmp_path / "parts", 1, look), whole(work))
    assert seen == [6, 6, 6, 5]  # one part was there


def test_parts_of_another_measurement_are_not_taken(work: Work, tmp_path: Path) -> None:
    other = work._replace(seed=6)
    for part in other.parts():
        other.collected(part).save(tmp_path / "parts" / other.digest() / f"{part.start:06d}.pt")
    assert_same(measure_in_parts(work, tmp_path / "parts", 1, lambda images: None), whole(work))


@pytest.mark.long
def test_several_processes_give_the_same(work: Work, tmp_path: Path) -> None:
    assert_same(measure_in_parts(work, tmp_path / "parts", 2, lambda images: None), whole(work))


ENDLESS = """
import os
from pathlib import Path

import torch

from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.measure import in_parts
from releg.sbn import SigmoidBeliefNet

if __name__ == "__mp_main__":
    Path(f"{os.getpid()}.worker").touch()
if __name__ == "__main__":
    in_parts.IMAGES_PER_PART = 1
    images = torch.ones(9, 3)
    work = in_parts.Work({"crn": CommonRandomNumbers("batched")}, SigmoidBeliefNet(3, [4, 2]), images, 10**8, 0)
    in_parts.measure_in_parts(work, Path("parts"), 2, lambda images: None)
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    process = subprocess.Popen([sys.executable, "endless.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    workers: list[int] = []
    deadline = time.monotonic() + 120
    while len(workers) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
        workers = [int(file.stem) for file in tmp_path.glob("*.worker")]
    process.send_signal(number)
    process.wait(20)
    assert len(workers) == 2
    assert end_all(workers, patience=30) == 0
