"""What TensorBoard shows of a run."""

import time
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightning_modules.gradient_variance import metrics_of
from lightning_modules.run.tensorboard import RunTensorBoard
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.measure.variance import measure
from tests.releg.helpers import random_model, random_x


def test_tags_are_the_names_of_metrics_bounds_come_first_and_one_process_writes_one_file(tmp_path: Path) -> None:
    logger = RunTensorBoard(str(tmp_path))
    logger.log_metrics({"train/elbo": -3.0, "epoch": 0}, 10)
    measured = measure({"crn": CommonRandomNumbers("dense")}, random_model(5, [3, 2]), random_x(2, 5), 2)
    logger.log_metrics(metrics_of(measured, "crn"), 10)
    logger.finalize("success")  # training has ended; the test follows
    logger.log_metrics({"test/elbo": -2.0, "epoch": 0}, 20)
    logger.log_hyperparams({"seed": 0}, {"test/elbo": -2.0}, 20)
    logger.save()
    assert len(list(tmp_path.glob("events.*"))) == 1
    events = EventAccumulator(str(tmp_path)).Reload()
    tags = sorted(events.Tags()["scalars"])
    assert tags[:2] == ["test/elbo", "train/elbo"]
    assert tags[2:] == sorted(f"variance/{kind}/layer{i}" for kind in ("within", "between", "total") for i in (1, 2))
    assert [event.step for event in events.Scalars("test/elbo")] == [20, 20]
    assert any("_hparams_" in tag for tag in events.summary_metadata)


def test_a_continued_run_hides_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    for start in (0, 10):
        time.sleep(start / 9)  # the next file is one of a later second, as its name says
        logger = RunTensorBoard(str(tmp_path))
        logger.start_at(start)
        for step in (start + 5, start + 10, start + 15):
            logger.log_metrics({"train/elbo": float(start)}, step)
        logger.save()
    events = EventAccumulator(str(tmp_path)).Reload().Scalars("train/elbo")
    assert [(event.step, event.value) for event in events] == [(5, 0), (10, 0), (15, 10), (20, 10), (25, 10)]
