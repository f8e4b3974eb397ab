"""The tables of a run's folder."""

from pathlib import Path

import pytest
import torch

from lightning_modules.run.csv_files import MetricsCSV, read_metrics, read_variances, replace_variances
from releg.measure.moments import Number
from releg.measure.variance import GradientVariances


def logged(path: Path) -> list[tuple[str, str, str]]:
    return [(row["step"], row["metric"], row["value"]) for row in read_metrics(path)]


def test_a_continued_run_logs_again_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    first = MetricsCSV(tmp_path)
    for step in (10, 20, 30):
        first.log_metrics({"train/elbo": float(-step), "epoch": 0.0, "step": float(step)}, step)
    first.log_metrics({"val/elbo": -20.5}, 20)
    continued = MetricsCSV(tmp_path)
    continued.rewind(20)
    continued.log_metrics({"val/elbo": -21.0}, 20)  # replaces the one that was logged before the interruption
    assert logged(first.path) == [
        ("10", "train/elbo", "-10.0"),
        ("20", "train/elbo", "-20.0"),
        ("20", "val/elbo", "-21.0"),
    ]


def test_rows_are_counted_up_to_a_step_however_often_a_run_is_continued(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    counts: list[int] = []
    for step in (10, 20, 30):
        logger = MetricsCSV(tmp_path, continues=step > 10)
        logger.rewind(step - 10, *counts[-1:])
        for _ in range(2):  # the second time in place of the first, or of what the run before had logged
            logger.log_metrics({"val/elbo": -1.0}, step - 10)
        logger.log_metrics({"train/elbo": -1.0}, step - 5)
        assert logger.rows_before(step - 5) == logger.rows_before(step) - 1
        counts.append(logger.rows_before(step))
    assert counts == [2, 4, 6]
    assert not caplog.records
    logger.path.write_text("\n".join(logger.path.read_text().splitlines()[2:]))  # without the header and the first row
    MetricsCSV(tmp_path, continues=True).rewind(30, counts[-1])
    assert "metrics.csv lacks 1 rows, expected 6 of the steps before 30; they are lost" in caplog.text


def test_damaged_rows_of_metrics_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="releg")
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"train/elbo": -1.0}, 10)
    with logger.path.open("a") as file:
        file.write("20,1.0,train/el")  # killed in mid-line
    assert logged(logger.path) == [("10", "train/elbo", "-1.0")]
    assert "metrics.csv has 1 damaged lines, expected whole rows" in caplog.text


def test_rows_of_a_step_are_replaced_and_damaged_ones_dropped(tmp_path: Path) -> None:
    file = tmp_path / "grad_variance.csv"

    def results(value: float) -> dict[str, GradientVariances]:
        return {"crn": GradientVariances(3, 4, [{"within": Number(value, torch.rand(3))}])}

    for step, value in ((10, 1.0), (2, 2.0), (10, 3.0)):
        replace_variances(file, step, results(value))
    assert [(row["step"], row["value"]) for row in read_variances(file)] == [("2", "2.0"), ("10", "3.0")]
    with file.open("a") as damaged:
        damaged.write("12,crn,1,wi")
    assert len(read_variances(file)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["grad_variance.csv"]
