"""The tables of a run's folder."""

from pathlib import Path

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
    first.log_metrics({"test/elbo": -20.5}, 20)  # by a process that was killed before it wrote the result
    continued = MetricsCSV(tmp_path)
    continued.start_at(20)
    continued.log_metrics({"test/elbo": -21.0}, 20)
    rows = [("10", "train/elbo", "-10.0"), ("20", "train/elbo", "-20.0"), ("20", "test/elbo", "-21.0")]
    assert logged(first.path) == rows


def test_a_row_that_was_cut_is_left_out(tmp_path: Path) -> None:
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"train/elbo": -1.0}, 10)
    with logger.path.open("a") as file:
        file.write("20,1.0,train/el")  # killed in mid-line
    assert logged(logger.path) == [("10", "train/elbo", "-1.0")]


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
