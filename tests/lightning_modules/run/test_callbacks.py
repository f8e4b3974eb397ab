"""What a run shows and notes while it trains."""

import time
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightning_modules.run.callbacks import ImageGrids, ProgressFile, StepProgress, TrainingClock, grids
from lightning_modules.run.life import make_loggers, make_trainer
from lightning_modules.run.parent import PROGRESS_VARIABLE, read_progress
from lightning_modules.sbn_module import SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers
from tests.lightning_modules.small_data import small
from tests.releg.helpers import random_model, random_x


def train(folder: Path, *callbacks: pl.Callback) -> None:
    """Eight steps, a validation after every second one."""
    settings = {"accelerator": "cpu", "devices": 1, "max_steps": 8, "val_check_interval": 2}
    trainer = make_trainer({**settings, "callbacks": list(callbacks)}, folder, make_loggers(folder))
    trainer.fit(SBNModule([3], CommonRandomNumbers(), 12), datamodule=small())
    for logger in trainer.loggers:
        logger.save()


def test_images_are_written_at_the_start_the_end_and_whenever_the_step_has_doubled(tmp_path: Path) -> None:
    train(tmp_path, ImageGrids())
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["images"]) == {"images/data", "images/reconstruction", "images/sample"}
    assert [event.step for event in events.Images("images/sample")] == [2, 4, 8]


def test_without_weights_reconstructions_and_samples_are_the_pixels_own_means() -> None:
    model, x = random_model(12, [4, 3]), random_x(5, 12)
    model.generative[0].weight.data.zero_()
    shown = grids(model, x, torch.Generator().manual_seed(0))
    assert torch.equal(shown["data"], x)
    expected = torch.sigmoid(model.generative[0].bias).expand(5, 12)
    for name in ("reconstruction", "sample"):
        torch.testing.assert_close(shown[name], expected)


def test_the_process_that_started_the_run_is_told_the_first_step_and_then_step_and_elbo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    class Reader(pl.Callback):
        def on_train_batch_end(self, *args: object) -> None:
            told.append(read_progress(tmp_path / "progress.json"))

    monkeypatch.setenv(PROGRESS_VARIABLE, str(tmp_path / "progress.json"))
    monkeypatch.setattr("lightning_modules.run.callbacks.SECONDS_BETWEEN_WRITES", 0.0)
    train(tmp_path, ProgressFile(), Reader())
    assert [each.step for each in told if each] == list(range(1, 9))
    assert all(each and each.elbo is not None and each.elbo < 0 for each in told)


def test_lines_of_progress_name_step_elbos_and_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    now = [0.0]

    class Minutes(pl.Callback):
        def on_train_batch_start(self, *args: object) -> None:
            now[0] += 60

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    train(tmp_path, Minutes(), StepProgress())
    lines = [record.message for record in caplog.records if record.message.startswith("step ")]
    assert len(lines) == 8
    assert lines[0].startswith("step 1 of 8, train/elbo -")
    assert lines[0].endswith(", 7.0 min left")
    assert "val/elbo -" in lines[-1]
    assert lines[-1].endswith(", 0.0 min left")


def test_the_clock_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1000))
    monkeypatch.setattr("lightning_modules.run.callbacks.time.perf_counter", lambda: float(next(now)))
    clock = TrainingClock()
    clock.load_state_dict({"seconds": 100.0})
    train(tmp_path, clock)
    assert clock.state_dict() == {"seconds": 108.0}, "a second for each of eight steps"
