"""Figure 1, its page and the page of variances, from made-up curves."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from releg.records.file_names import FIGURE1, RESULT, VARIANCES
from releg.records.runs import read_runs
from releg.report.curves import MEASURED_RUN, Bound, bounds_of, measurement_file
from releg.report.figure1 import draw, draw_more, write_figure1
from releg.report.variance import (
    Measurement,
    Number,
    Table,
    at_shared_weights,
    figure1_runs,
    largest,
    measured_variances,
    ratio,
    tables,
    write_variance,
)
from tests.releg.report.synthetic import entry, write_curves, write_results, write_variances

NET = "32-64-128-256"
STEPS = (10, 100, 1000, 10_000)


def results_with_curves(folder: Path, seeds: int = 1, steps: int = 10_000) -> Path:
    runs = [entry(NET, name, seed, 100.0, steps) for name in ("lr", "crn") for seed in range(seeds)]
    write_results(folder, [*runs, entry("200-200", "lr", 0, 112.0, steps)])
    for run in runs:
        write_curves(folder, run, -100.0 - run["config"]["seed_everything"], 8.0)
        if run["estimator"] == "lr":
            write_variances(folder / run["folder"] / VARIANCES, STEPS)
    return folder


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return results_with_curves(tmp_path)


def curves(results: Path) -> tuple[list[Bound], dict[Measurement, Table]]:
    known = tables(at_shared_weights(measured_variances(results)))
    return bounds_of(figure1_runs(results), results / FIGURE1), known


def measure_at_the_end(results: Path, seed: int, step: int) -> None:
    """Measure the LR run of this seed on all images."""
    (run,) = (run for run in figure1_runs(results) if (run.estimator, run.seed) == ("lr", seed))
    path = measurement_file(results, "lr")
    write_variances(path, [step], images=50_000, scale=7.0)
    path.with_suffix(".json").write_text(json.dumps({"commit": "beef", MEASURED_RUN: run.trained}))


@pytest.mark.parametrize("gone", ["all", "one", "replaced"])
def test_runs_that_are_elsewhere_keep_their_curves(results: Path, gone: str) -> None:
    before = curves(results)
    folder = read_runs(results)[0].folder
    if gone == "replaced":
        (folder / RESULT).write_text("{}")
        (folder / VARIANCES).unlink()
    else:
        shutil.rmtree(results / "runs" if gone == "all" else folder)
    assert curves(results) == before


def test_without_a_run_of_the_architecture_no_old_figure_stays(results: Path) -> None:
    write_figure1(results)
    write_variance(results)
    written = {path.name for path in results.glob("*") if path.name.startswith(("figure1", "variance"))}
    assert written >= {"figure1.md", "figure1.png", "figure1.pdf", "figure1_more.png", "variance.md"}
    write_results(results, [entry("200-200", "lr", 0, 112.0)])
    assert write_figure1(results) == write_variance(results) == ""
    assert not [path for path in results.glob("*") if path.name in written]


def test_the_curve_is_the_mean_over_seeds(tmp_path: Path) -> None:
    bounds, known = curves(results_with_curves(tmp_path, seeds=2))
    lr, _ = draw(bounds, known).axes[0].get_lines()
    values = [bound.value for bound in bounds if (bound.estimator, bound.step) == ("lr", 10_000)]
    assert np.asarray(lr.get_ydata())[-1] == pytest.approx(sum(values) / 2)


def test_the_measurement_on_more_images_stands_in_a_panel_of_its_own(results: Path) -> None:
    measure_at_the_end(results, 0, 9_500)
    bounds, known = curves(results)
    assert largest(known) == Measurement(9_500, 50_000)
    lengths = [len(np.asarray(line.get_xdata())) for line in draw(bounds, known).axes[1].get_lines()]
    assert lengths == [len(STEPS)] * 8  # two estimators, four layers
    by_layer = draw_more(bounds, known).axes[1]
    values = [float(np.asarray(line.get_ydata())[0]) for line in by_layer.get_lines()]
    assert sorted(values) == sorted(
        number.value for key, number in known[Measurement(9_500, 50_000)].items() if key[1] == "total"
    )
    page = write_figure1(results)
    assert "after 9,500 steps on 50,000 images" in page
    assert "(LR, seed 0)" in page
    assert "1,000 samples for\neach of 100 training images" in page


def test_without_variances_there_is_one_panel(results: Path) -> None:
    bounds, _ = curves(results)
    assert len(draw(bounds, {}).axes) == len(draw_more(bounds, {}).axes) == 1


def test_variances_are_compared_at_the_weights_of_one_run(tmp_path: Path) -> None:
    """The one that was measured on most images, or else the first: a mean over runs would lack its standard error."""
    results = results_with_curves(tmp_path, seeds=2)
    assert {point.seed for point in at_shared_weights(measured_variances(results))} == {0}
    measure_at_the_end(results, 1, 9_500)
    assert {point.seed for point in at_shared_weights(measured_variances(results))} == {1}
    assert "(LR, seed 1)" in write_variance(results)


def test_the_page_of_variances_has_every_ratio(results: Path) -> None:
    measure_at_the_end(results, 0, 9_500)
    page = write_variance(results)
    assert "## After 9,500 steps, on 50,000 images" in page
    total, exact = page.split("## During training")[1:]
    assert "| 9,500 | 50,000 | 7,000,000 ± 1,000,000 |" in total  # 1.1e3 · 9500 / 1.5
    assert "| 10,000 | 100 | 30,000,000 ± 4,000,000 |" in exact  # 3e3 · 1e4
    assert "measurement at the end of a run, in `variance/`:\n\n- commit: beef" in page


def test_the_measurement_of_a_run_that_was_trained_again_is_left_out(results: Path) -> None:
    before = measured_variances(results)
    measure_at_the_end(results, seed=0, step=9_500)
    assert len(measured_variances(results)) > len(before)
    runs = json.loads((results / "runs.json").read_text())["runs"]
    for run in runs:
        run["result"]["training_seconds"] += 1
    write_results(results, runs)
    assert measured_variances(results) == before


def test_a_ratio_has_the_errors_of_both_numbers() -> None:
    assert ratio(Number(10.0, 3.0), Number(2.0, 0.8)) == pytest.approx((5.0, 2.5))
    assert str(ratio(Number(1.0, 0.1), Number(0.0, 0.1))) == "–"
