"""How long the grid will take."""

import time
from pathlib import Path

import pytest

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.grid import estimate
from lightning_modules.grid.estimate import Cost, left_together
from lightning_modules.grid.options import budget_file
from lightning_modules.grid.plan import plan, status_of


def test_time_left_is_the_sum_over_runs_divided_by_jobs_but_no_less_than_the_longest() -> None:
    assert left_together([10.0, 20.0, 30.0], 1) == 60.0
    assert left_together([10.0, 20.0, 30.0], 2) == 30.0
    assert left_together([1.0, 1.0, 30.0], 3) == 30.0
    assert left_together([], 1) == 0.0


def test_a_continued_run_costs_only_what_is_left() -> None:
    cost = Cost(start=5.0, step=0.1, rest=10.0, steps=100)
    assert cost.total() == 25.0
    assert cost.total(50) == 15.0
    assert cost.left(100) == 0.0


def test_a_run_is_predicted_with_its_measurements_but_without_what_only_the_first_of_them_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some loops are compiled only for as many paths as a measurement has; that made minutes into days."""
    compiled: set[int] = set()

    def measure(estimators: object, model: object, images: object, samples: int) -> None:
        time.sleep(0.02 if samples in compiled else 0.5)
        compiled.add(samples)

    monkeypatch.setattr(estimate, "measure", measure)
    (lr,) = (
        run
        for run in plan(budget_file("standard"), 1, tmp_path)
        if (run.architecture, run.estimator) == ("32-64-128-256", "lr")
    )
    config = status_of(lr).config
    config["model"]["compile"] = False  # it would take most of the time of this test
    cost = estimate.estimate(config, BinarizedMNIST(), start=1.0)
    assert 0.02 <= cost.sample * estimate.TRIAL_IMAGES * estimate.TRIAL_SAMPLES < 0.4
    assert 12 * 100 * 1_000 * cost.sample < cost.rest, "12 measurements, and validations"
    assert 0 < cost.step < 1
