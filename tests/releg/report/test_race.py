"""The race, from made-up clocks."""

import json
import shutil
from pathlib import Path

import pytest

from lightning_modules.shipped_estimators import shipped_names
from releg.records.file_names import RACE_RUNS
from releg.report.curves import Bound
from releg.report.race import draw, race, seconds_to, value_at, write_race
from tests.releg.report.synthetic import entry, write_curves

CURVE = [Bound("a", 0, 1, 10.0, -130.0), Bound("a", 0, 2, 20.0, -120.0), Bound("a", 0, 3, 40.0, -110.0)]
RUNS = {  # end of the bound, milliseconds per step: minutes in all are a sixth of these
    "lr": (-112.0, 6.0),
    "crn": (-100.0, 12.0),
    "rodeo": (-100.0, 60.0),
    "reinmax": (-104.0, 3.0),
}


def write(results: Path, runs: dict[str, tuple[float, float]], seeds: int = 1) -> Path:
    entries = []
    for name, (end, ms_per_step) in runs.items():
        for seed in range(seeds):
            run = entry("200-200", name, seed, 100.0) | {"label": "ReinMax", "unbiased": name != "reinmax"}
            write_curves(results, run, end - 14 * seed, ms_per_step)
            entries.append(run)
    (results / RACE_RUNS).write_text(json.dumps({"runs": entries}))
    return results


def test_bounds_and_times_are_interpolated() -> None:
    assert value_at(CURVE, 15) == pytest.approx(-125)
    assert (value_at(CURVE, 1), value_at(CURVE, 99)) == (-130, -110)
    assert seconds_to(CURVE, -115) == pytest.approx(30)
    assert (seconds_to(CURVE, -140), seconds_to(CURVE, -100)) == (10, None)
    falls_back = [*CURVE, Bound("a", 0, 4, 50.0, -125.0), Bound("a", 0, 5, 60.0, -100.0)]
    assert seconds_to(falls_back, -115) == pytest.approx(30), "the first time counts"


def test_the_order_is_that_of_the_bounds_at_lrs_time(tmp_path: Path) -> None:
    racers = race(write(tmp_path, RUNS))
    assert [racer.runs[0].estimator for racer in racers] == ["reinmax", "lr", "crn", "rodeo"]
    assert [round(racer.at_lr_time, 1) for racer in racers] == [104.0, 112.0, 130.0, 154.0]
    minutes = {racer.runs[0].estimator: racer.minutes_to(105.0) for racer in racers}
    assert minutes.pop("reinmax") is not None
    assert minutes == {"lr": None, "crn": pytest.approx(2 * 55 / 60), "rodeo": pytest.approx(10 * 55 / 60)}


def test_the_page_marks_who_ended_early_and_shows_only_bounds_that_are_reached(tmp_path: Path) -> None:
    page = write_race(write(tmp_path, {"lr": RUNS["lr"], "reinmax": RUNS["reinmax"]}))
    assert "| ReinMax (biased) | 104.00* | 0.27 | 0.31 | 0.36 | 0.40 | 0.45 | 0.49 | 0.5 | 100.00 | 98.00 |" in page
    assert "| LR | 112.00 | 0.62 | 0.73 | 0.83 | 0.94 | – | – | 1.0 | 100.00 | 98.00 |" in page
    assert "minutes to 100" not in page
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")


def test_several_seeds_are_averaged_and_must_all_get_there(tmp_path: Path) -> None:
    (racer,) = race(write(tmp_path, {"lr": (-112.0, 6.0)}, seeds=2))
    assert racer.at_lr_time == pytest.approx(119)
    assert racer.minutes_to(130.0) == pytest.approx((30 / 48 + 30 / 34) / 2)
    assert racer.minutes_to(120.0) is None


def test_a_clone_without_the_runs_makes_the_same_files_from_the_csv(tmp_path: Path) -> None:
    results = write(tmp_path, RUNS)

    def artefacts() -> list[bytes]:
        write_race(results)
        return [(results / name).read_bytes() for name in ("race.csv", "race.md", "race.png")]

    before = artefacts()
    for gone in ("runs/nothing-in-this-name/200-200lr0", "runs"):
        shutil.rmtree(results / gone)
        assert artefacts() == before


def test_without_lr_there_is_no_race_and_no_old_file_is_left(tmp_path: Path) -> None:
    write_race(write(tmp_path, RUNS))
    runs = json.loads((tmp_path / RACE_RUNS).read_text())["runs"]
    (tmp_path / RACE_RUNS).write_text(json.dumps({"runs": runs[1:]}))
    assert write_race(tmp_path) == ""
    assert not list(tmp_path.glob("race.*"))


def test_all_shipped_estimators_have_a_panel(tmp_path: Path) -> None:
    names = ["lr", "crn", *(n for n in shipped_names() if n not in ("likelihood_ratio", "common_random_numbers"))]
    runs = {name: (-100.0 - 2 * place, 5.0 + 3 * place) for place, name in enumerate(names)}
    racers = race(write(tmp_path, runs))
    panels = [panel for panel in draw(racers).axes if panel.get_visible()]
    assert len(panels) == len(racers) == len(names)
