"""The race, from made-up curves whose clocks and crossings are known."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lightning_modules.shipped_estimators import ESTIMATOR_CONFIGS, shipped_names
from releg.records.csv_formats import METRICS_COLUMNS
from releg.records.file_names import EXTENDED_RUNS, RESULT
from releg.report.extended import write_extended
from releg.report.race import Point, seconds_to, value_at
from tests.releg.report.synthetic import PROVENANCE

STEPS = 10_000
CURVE = [Point("a", 0, step, step / 10, value) for step, value in ((100, -140.0), (200, -120.0), (300, -110.0))]


def test_between_measurements_the_bound_is_linear_in_time() -> None:
    assert value_at(CURVE, 15.0) == pytest.approx(-130)
    assert value_at(CURVE, 20.0) == -120
    assert value_at(CURVE, 1.0) == -140
    assert value_at(CURVE, 99.0) == -110


def test_a_bound_is_reached_where_the_curve_first_crosses_it() -> None:
    assert seconds_to(CURVE, -115) == pytest.approx(25)
    assert seconds_to(CURVE, -110) == pytest.approx(30)
    assert seconds_to(CURVE, -105) is None
    assert seconds_to(CURVE, -150) == 10
    falls_back = [*CURVE, Point("a", 0, 400, 40.0, -130.0), Point("a", 0, 500, 50.0, -110.0)]
    assert seconds_to(falls_back, -115) == pytest.approx(25)


def entry(estimator: str, seed: int, threads: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "folder": f"runs/200-200/{estimator}/seed{seed}",
        "estimator": estimator,
        "config": {
            "seed_everything": seed,
            "model.layers": [200, 200],
            "model.estimator.class_path": "x.X",
            "model.test_samples": 10,
            "trainer.max_steps": STEPS,
        },
        "result": {
            "best_step": STEPS,
            "training_seconds": 1.0,
            "test/elbo": -100.0,
            "test/multi_sample_bound": -98.0,
        },
        "provenance": [{**PROVENANCE, "torch_threads": threads}],
        **more,
    }


def write_run(results: Path, run: dict[str, Any], end: float, ms_per_step: float) -> None:
    """A bound that rises linearly from -160 to `end`."""
    folder = results / run["folder"]
    folder.mkdir(parents=True)
    (folder / RESULT).write_text(json.dumps(run["result"]))
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(METRICS_COLUMNS)
        for step in range(500, STEPS + 1, 500):
            writer.writerow([step, f"{step * ms_per_step / 1000:.3f}", "val/elbo", -160 + (end + 160) * step / STEPS])
            writer.writerow([step, "0", "train/elbo", -1.0])


RUNS = {  # end of the bound, milliseconds per step: minutes in all are a sixth of these
    "lr": (-112.0, 6.0),
    "crn": (-100.0, 12.0),
    "rodeo": (-100.0, 60.0),
    "reinmax": (-104.0, 3.0),
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    runs = [entry(name, 0, unbiased=name != "reinmax") for name in RUNS]
    for run in runs:
        write_run(tmp_path, run, *RUNS[run["estimator"]])
    (tmp_path / EXTENDED_RUNS).write_text(
        json.dumps({"command": "bash reproduce.sh --extended", "seconds": 1.0, "runs": runs, "missing": {}})
    )
    return tmp_path


def rows_of(results: Path) -> dict[str, dict[str, Any]]:
    return {row["estimator"]: row for row in json.loads((results / "race.json").read_text())}


def test_minutes_and_bounds_are_those_of_the_clocks(results: Path) -> None:
    write_extended(results)
    rows = rows_of(results)
    assert rows["lr"]["lr_minutes"] == pytest.approx(1.0)
    assert rows["lr"]["nll_after_lr_minutes"] == pytest.approx(112)
    assert rows["crn"]["nll_after_lr_minutes"] == pytest.approx(130)  # half of its steps
    assert rows["reinmax"]["nll_after_lr_minutes"] == pytest.approx(104)  # it was done after half a minute
    assert rows["lr"]["minutes_to"]["115.0"] == pytest.approx(45 / 48)
    assert rows["lr"]["minutes_to"]["110.0"] is None
    assert rows["crn"]["minutes_to"]["105.0"] == pytest.approx(2 * 55 / 60)
    assert rows["rodeo"]["minutes_to"]["105.0"] == pytest.approx(10 * 55 / 60)


def test_the_order_is_that_of_the_time_to_the_hardest_bound(results: Path) -> None:
    text = write_extended(results)
    assert list(rows_of(results)) == ["reinmax", "crn", "rodeo", "lr"]
    table = (results / "race.md").read_text()
    assert "| ReinMax (biased) | 104.00* |" in table
    assert "| LR | 112.00 | 0.62 | 0.73 | 0.83 | 0.94 | – | – | – | 1.0 |" in table
    assert "Every run had one thread" in table
    assert table in text
    assert (results / "race.png").read_bytes().startswith(b"\x89PNG")


def test_a_slow_estimator_does_not_win_by_a_bound_that_few_reach(results: Path) -> None:
    """Only RODEO and CRN get to 100, so that 105 decides: RODEO takes five times CRN's time."""
    write_extended(results)
    rows = rows_of(results)
    assert rows["reinmax"]["minutes_to"]["100.0"] is None
    assert list(rows).index("reinmax") < list(rows).index("rodeo")
    assert "the order: minutes to 105" in (results / "race.md").read_text()


def test_runs_whose_folders_are_elsewhere_keep_their_points(results: Path) -> None:
    write_extended(results)
    before = (results / "race.json").read_bytes()
    for name in ("rodeo", "lr"):
        shutil.rmtree(results / "runs" / "200-200" / name)
        write_extended(results)
        assert (results / "race.json").read_bytes() == before


def test_only_bounds_that_some_estimator_reaches_have_a_column(results: Path) -> None:
    manifest = json.loads((results / EXTENDED_RUNS).read_text())
    manifest["runs"] = [run for run in manifest["runs"] if run["estimator"] == "lr"]
    (results / EXTENDED_RUNS).write_text(json.dumps(manifest))
    write_extended(results)
    assert "| minutes to 120 | minutes to 115 | minutes in all |" in (results / "race.md").read_text()


def test_a_falling_rate_is_mentioned(results: Path) -> None:
    write_extended(results)
    assert "learning rate" not in (results / "race.md").read_text()
    manifest = json.loads((results / EXTENDED_RUNS).read_text())
    manifest["runs"][0]["config"]["model.lr_scheduler.class_path"] = "lightning_modules.schedules.LinearDecay"
    (results / EXTENDED_RUNS).write_text(json.dumps(manifest))
    write_extended(results)
    assert "the learning rate of each run falls" in (results / "race.md").read_text()


def test_several_seeds_are_averaged_and_must_all_get_there(results: Path) -> None:
    manifest = json.loads((results / EXTENDED_RUNS).read_text())
    second = entry("crn", 1)
    write_run(results, second, -114.0, 12.0)
    manifest["runs"].append(second)
    (results / EXTENDED_RUNS).write_text(json.dumps(manifest))
    write_extended(results)
    crn = rows_of(results)["crn"]
    assert crn["seeds"] == [0, 1]
    assert crn["minutes_to"]["115.0"] == pytest.approx((2 * 45 / 60 + 2 * 45 / 46) / 2)
    assert crn["minutes_to"]["110.0"] is None


def test_a_clone_without_the_runs_makes_the_same_files_from_the_csv(results: Path) -> None:
    write_extended(results)
    names = ("race.csv", "race.json", "race.md", "race.png")
    before = {name: (results / name).read_bytes() for name in names}
    shutil.rmtree(results / "runs")
    write_extended(results)
    assert {name: (results / name).read_bytes() for name in names} == before


def test_a_folder_that_another_run_got_in_the_meantime_is_not_read(results: Path) -> None:
    write_extended(results)
    before = (results / "race.csv").read_bytes()
    for path in (results / "runs").rglob(RESULT):
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"test/elbo": -1.0}))
        path.with_name("metrics.csv").write_text("")
    write_extended(results)
    assert (results / "race.csv").read_bytes() == before


def test_without_lr_there_is_no_race_and_no_old_file_is_left(results: Path) -> None:
    write_extended(results)
    manifest = json.loads((results / EXTENDED_RUNS).read_text())
    manifest["runs"] = [run for run in manifest["runs"] if run["estimator"] != "lr"]
    (results / EXTENDED_RUNS).write_text(json.dumps(manifest))
    write_extended(results)
    assert not list(results.glob("race.*"))


def test_runs_with_several_threads_are_said_to_have_them(results: Path) -> None:
    manifest = json.loads((results / EXTENDED_RUNS).read_text())
    manifest["runs"][0]["provenance"][0]["torch_threads"] = 2
    (results / EXTENDED_RUNS).write_text(json.dumps(manifest))
    assert "The runs had 1 and 2 threads" in write_extended(results)


def test_all_shipped_estimators_fit_into_the_figure(tmp_path: Path) -> None:
    names = ["lr", "crn", *(n for n in shipped_names() if n not in ("likelihood_ratio", "common_random_numbers"))]
    assert len(names) == len(list(ESTIMATOR_CONFIGS.glob("*.yaml")))
    runs = [entry(name, 0) for name in names]
    for number, run in enumerate(runs):
        write_run(tmp_path, run, -100.0 - 2 * number, 5.0 + 3 * number)
    (tmp_path / EXTENDED_RUNS).write_text(json.dumps({"command": "x", "seconds": None, "runs": runs, "missing": {}}))
    write_extended(tmp_path)
    assert len(rows_of(tmp_path)) == len(names)
