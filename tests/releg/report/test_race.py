"""The race, from made-up runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from releg.records.file_names import PROTOCOL_CURVES, RACE
from releg.records.race import RATES, SEEDS, chosen_rate
from releg.report.race import CURVES, draw, racers_of, seconds_to, shown, value_at, write_race
from tests.releg.report.test_protocol import curve as later_curve

CURVE = [[1, 10.0, -130.0], [2, 20.0, -120.0], [3, 40.0, -110.0]]
Run = dict[str, Any]


def run(name: str, rate: float, seed: int, end: float, minutes: float = 1.0, net: str = "200-200") -> Run:
    curve = [[5000, 30 * minutes, end - 20], [10_000, 60 * minutes, end]]
    names = {"label": name.upper(), "unbiased": name != "reinmax", "objective": "elbo"}
    bounds = {"val/elbo": end, "test/elbo": end + 1, "test/multi_sample_bound": end + 5}
    made = {"steps": 10_000, "samples": 10, "curve": curve, "commit": "c0ffee", "machine": "AMD, 2 cores"}
    return {"architecture": net, "estimator": name, "rate": rate, "seed": seed, **names, **bounds, **made}


def all_runs(name: str, end: float, minutes: float = 1.0, net: str = "200-200") -> list[Run]:
    """0.003 is the best rate; its other seeds are half a nat apart."""
    trials = [run(name, rate, 0, end - abs(rate - 0.003) * 1000, minutes, net) for rate in RATES]
    return [*trials, *(run(name, 0.003, seed, end + (seed - 2) / 2, minutes, net) for seed in SEEDS)]


def write(results: Path, runs: list[Run]) -> str:
    (results / RACE).parent.mkdir(exist_ok=True)
    (results / RACE).write_text(json.dumps(runs))
    return write_race(results)


def test_bounds_and_times_are_interpolated() -> None:
    assert value_at(CURVE, 15) == pytest.approx(-125)
    assert (value_at(CURVE, 1), value_at(CURVE, 99)) == (-130, -110)
    assert seconds_to(CURVE, -115) == pytest.approx(30)
    assert (seconds_to(CURVE, -140), seconds_to(CURVE, -100)) == (10, None)
    assert seconds_to([*CURVE, [4, 50.0, -125.0], [5, 60.0, -100.0]], -115) == pytest.approx(30), (
        "the first time counts"
    )


def test_the_rate_is_the_best_one_of_the_choosing_seed_once_all_were_tried() -> None:
    runs = all_runs("lr", -110.0)
    assert chosen_rate([*runs, run("lr", 0.01, 1, -50.0)]) == 0.003
    assert chosen_rate(runs[:2]) is None


def test_a_row_has_the_chosen_rate_and_means_with_their_spread_over_the_other_seeds(tmp_path: Path) -> None:
    page = write(tmp_path, [*all_runs("likelihood_ratio", -110.0), *all_runs("reinmax", -104.0, minutes=0.5)])
    lr = "| LIKELIHOOD_RATIO | 0.003 | 110.00 ± 0.50 | 110.00 ± 0.50 | 0.62 ± 0.01 | 0.88 ± 0.01 | 2 of 3 | – | – |"
    assert f"{lr} 1.00 ± 0.00 | 109.00 ± 0.50 | 105.00 ± 0.50 | 6 of 6 |" in page
    fast = "| REINMAX (biased) | 0.003 | 104.00 ± 0.50 | 104.00 ± 0.50* | 0.25 ± 0.00 |"
    assert page.index(fast) < page.index(lr)
    assert "| LIKELIHOOD_RATIO | 112.00 | 110.00 | 117.00 |" in page
    assert "after 1.0 minutes" in page
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")


def test_lr_is_not_marked_as_ended_early_at_its_own_mean_time(tmp_path: Path) -> None:
    runs = all_runs("likelihood_ratio", -110.0)
    runs[3]["curve"][-1][1] += 20
    assert "*" not in write(tmp_path, runs).split("## SBN")[1]


def test_what_is_unfinished_is_shown_as_unfinished(tmp_path: Path) -> None:
    page = write(tmp_path, [*all_runs("disarm", -110.0)[:4], *all_runs("arm", -120.0)[:2]])
    assert "| DISARM | 0.003 | 110.50 | – |" in page
    assert "| 4 of 6 |" in page
    assert "| ARM | – | – | – | – | – | – | – | – | – | – | – | 2 of 6 |" in page
    assert "| ARM | 122.00 | 120.00 | – |" in page
    assert "SBN(32-64-128-256)" not in page


def test_a_panel_has_at_most_twelve_curves_and_always_lr() -> None:
    runs = [run for place in range(15) for run in all_runs(f"e{place}", -100.0 - place)]
    runs += all_runs("likelihood_ratio", -130.0)
    racers = racers_of(runs, "200-200")
    names = [racer.runs[0]["estimator"] for racer in shown(racers)]
    assert names == [*(f"e{place}" for place in range(CURVES - 1)), "likelihood_ratio"]
    figure = draw({"200-200": racers, "32-64-128-256": racers[:3]})
    assert [len(panel.lines) for panel in figure.axes] == [CURVES, 3]
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(looks) == CURVES


def test_the_protocol_of_later_papers_is_a_section_of_the_race_and_a_page_without_it(tmp_path: Path) -> None:
    (tmp_path / PROTOCOL_CURVES).parent.mkdir()
    (tmp_path / PROTOCOL_CURVES).write_text(json.dumps([later_curve("rodeo", -110.0)]))
    alone = write_race(tmp_path)
    assert (tmp_path / "protocol.md").read_text() == alone
    assert alone.startswith("# The protocol of later papers\n")
    page = write(tmp_path, all_runs("likelihood_ratio", -110.0))
    assert "## The protocol of later papers" in page
    assert alone.splitlines()[-3] in page
    assert not (tmp_path / "protocol.md").exists()
