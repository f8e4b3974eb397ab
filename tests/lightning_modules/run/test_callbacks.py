"""What a run shows and notes while it trains."""

import re
from pathlib import Path

import pytest
import pytorch_lightning as pl
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightning_modules.run.callbacks import ImageGrids, LearningRate, RunProgressBar, TrainingClock
from lightning_modules.run.csv_files import MetricsCSV
from lightning_modules.run.tensorboard import RunTensorBoard
from lightning_modules.sbn_module import SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers
from tests.lightning_modules.run_states import curve
from tests.lightning_modules.small_data import small


def train(folder: Path, *callbacks: pl.Callback) -> None:
    """Eight steps, a validation after every second one."""
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_steps=8, val_check_interval=2, log_every_n_steps=1, num_sanity_val_steps=0,
        callbacks=list(callbacks), logger=[MetricsCSV(folder), RunTensorBoard(str(folder))], default_root_dir=folder,
        enable_checkpointing=False, enable_model_summary=False,
        enable_progress_bar=any(isinstance(callback, RunProgressBar) for callback in callbacks),
    )  # fmt: skip
    trainer.fit(SBNModule([3], CommonRandomNumbers(), 12), datamodule=small())


def test_images_are_shown_whenever_the_step_has_doubled(tmp_path: Path) -> None:
    train(tmp_path, ImageGrids())
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["images"]) == {"val_images/data", "val_images/reconstruction", "val_images/sample"}
    assert [event.step for event in events.Images("val_images/sample")] == [2, 4, 8]


def test_lines_of_progress_name_step_elbos_speed_and_the_time_left_without_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    now = [1e6]

    class Minutes(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, *args: object) -> None:
            now[0] += 6000 if trainer.global_step == 0 else 60  # the first step compiles

    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    train(tmp_path, Minutes(), RunProgressBar())
    lines = [record.message for record in caplog.records if record.message.startswith("step ")]
    assert len(lines) == 7, "after the first step"
    assert re.fullmatch(r"step 2 of 8, train/elbo=-[\d.]+, .*steps/s, 06:00 left", lines[0])
    assert "val/elbo=-" in lines[-1]
    assert lines[-1].endswith(", 00:00 left")


def test_there_is_one_learning_rate(tmp_path: Path) -> None:
    train(tmp_path, LearningRate())
    rates = [row for row in curve(tmp_path) if row[1] == "train/learning_rate"]
    assert rates == [(str(step), "train/learning_rate", "0.001") for step in range(8)]


def test_the_clock_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1000))
    monkeypatch.setattr("lightning_modules.run.callbacks.time.perf_counter", lambda: float(next(now)))
    clock = TrainingClock()
    clock.load_state_dict({"seconds": 100.0})
    train(tmp_path, clock)
    assert clock.state_dict() == {"seconds": 108.0}, "a second for each of eight steps"
