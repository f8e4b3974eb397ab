"""Table 1 from made-up results."""

import json
from pathlib import Path
from typing import Any

import pytest

from releg.records.names import ARCHITECTURES
from releg.report.table1 import short_table, write_table1
from tests.releg.report.synthetic import entry, write_results

BOTH = [entry("200-200", "lr", 0, 112.0), entry("200-200", "lr", 1, 114.0), entry("200-200", "crn", 0, 108.5)]
SLOWER = {**BOTH[1], "result": BOTH[1]["result"] | {"training_seconds": 120.0}}


def test_the_page_has_mean_and_deviation_over_seeds_beside_the_paper(tmp_path: Path) -> None:
    runs = [BOTH[0], SLOWER, BOTH[2]]
    text = write_table1(write_results(tmp_path, runs, {"SBN(200-200) crn seed 1": "not trained yet"}))
    caption, table, missing, *_ = text.split("\n\n")
    assert caption.startswith(
        "**Table 1.** Negative elbo, a bound of the negative log-likelihood, on the MNIST test images"
    )
    recipe = "10 | 10,000 | RMSprop 0.001, constant"
    assert table.splitlines()[2:] == [
        f"| 200-200 | LR | 113.00 ± 1.41 | 98.86 | +14.14 | 111.00 ± 1.41 | {recipe} | 9,500 to 10,000 | 1.5 | 2 |",
        f"| 200-200 | CRN | 108.50 | 98.28 | +10.22 | 106.50 | {recipe} | 10,000 | 1.5 | 1 |",
    ]
    assert missing == "Not in this table:"
    assert "- SBN(200-200) crn seed 1: not trained yet" in text
    assert "| SBN | ours | paper |\n| --- | ---: | ---: |\n| 200-200 | +4.50 | +0.58 |" in text


def test_the_json_has_the_same_numbers(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, [BOTH[0], SLOWER, BOTH[2]]))
    lr, crn = json.loads((tmp_path / "table1.json").read_text())
    assert (lr["architecture"], lr["estimator"], lr["seeds"]) == ("200-200", "lr", [0, 1])
    assert lr["test_nll_mean"] == pytest.approx(113.0)
    assert lr["test_nll_sd"] == pytest.approx(2**0.5)
    assert lr["difference"] == pytest.approx(113.0 - 98.86)
    assert lr["minutes"] == pytest.approx(1.5), "the fastest run's, which had the machine to itself"
    assert crn["test_nll_sd"] is None


def test_the_settings_of_every_net_stand_under_the_table(tmp_path: Path) -> None:
    schedule = {"class_path": "lightning_modules.schedules.LinearDecay", "init_args.warmup_steps": 1000}
    config: dict[str, Any] = {f"model.lr_scheduler.{name}": value for name, value in schedule.items()}
    runs = [entry("200-200", "lr", seed, 98.9, 200_000, **config) for seed in (0, 1)]
    runs += [entry("200-200", name, 0, 98.9, 200_000) for name in ("crn",)]
    settings = write_table1(write_results(tmp_path, runs)).split("## Settings")[1]
    assert "| 200-200 | LR | 200,000 | RMSprop 0.001, linear, warm-up 1,000 | 0, 1 |" in settings
    assert "| 200-200 | CRN | 200,000 | RMSprop 0.001, constant | 0 |" in settings
    assert "- commit: c0ffee\n- machine: A CPU, 2 cores\n" in settings


def test_the_published_table_also_shows_the_cells_that_were_trained_for_longer(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, BOTH))
    alone = (tmp_path / "table1.json").read_text()
    assert "rained for longer" not in (tmp_path / "table1.md").read_text()
    write_table1(write_results(tmp_path / "converged", [entry("200-200", "lr", 0, 98.5, 1_000_000)]))
    text = write_table1(tmp_path)
    assert "| 200-200 | LR | 98.50 | 98.86 | -0.36 | 96.50 | 10 | 1,000,000 |" in text.split("## Trained for longer")[1]
    assert (tmp_path / "table1.json").read_text() == alone  # releg verify takes its rows for those of this folder


def test_rows_stand_in_the_papers_order_and_runs_of_other_estimators_are_left_out(tmp_path: Path) -> None:
    runs = [entry("50-10", "lr", 0, 130.0), entry("32-64-128-256", "crn", 0, 1.0), entry("200-200", "arm", 0, 50.0)]
    text = write_table1(write_results(tmp_path, [*runs, *BOTH]))
    rows = json.loads((tmp_path / "table1.json").read_text())
    assert [(row["architecture"], row["estimator"]) for row in rows] == [
        ("200-200", "lr"),
        ("200-200", "crn"),
        ("32-64-128-256", "crn"),
        ("50-10", "lr"),
    ]
    assert "| 50-10 | LR | 130.00 |  |  | 128.00 |" in text, "the paper has no such net"


def test_the_short_table_has_a_row_per_net_and_empty_cells_where_nothing_is_known(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, [*BOTH, entry("50-10", "crn", 0, 120.0)]))
    text = short_table(tmp_path)
    assert "| 200-200 | 113.00 ± 1.41 | 108.50 | 98.86 | 98.28 |" in text
    assert "| 32-64-128-256 |  |  | 94.73 | 92.79 |" in text
    assert "| 50-10 |  | 120.00 |  |  |" in text


def test_another_data_set_stands_in_the_title_and_is_not_compared_with_the_paper(tmp_path: Path) -> None:
    config: dict[str, Any] = {"data.class_path": "lightning_modules.binarized_fashion_mnist.BinarizedFashionMNIST"}
    text = write_table1(write_results(tmp_path, [*BOTH, entry("200-200", "lr", 0, 240.0, **config)]))
    assert "on the MNIST and FashionMNIST test images" in text
    assert "| 200-200, FashionMNIST | LR | 240.00 |  |  |" in text
    assert "| 200-200 | LR | 113.00 ± 1.41 | 98.86 |" in text


def test_a_damaged_file_is_named_and_the_old_table_stays(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, BOTH))
    before = (tmp_path / "table1.md").read_text()
    (tmp_path / "paper.json").write_text('{"test_nll": {"200-200": 3}}')
    with pytest.raises(ValueError, match=r"paper.json cannot be read \(.*\), expected"):
        write_table1(tmp_path)
    assert (tmp_path / "table1.md").read_text() == before


def test_the_papers_numbers_are_those_of_its_table(tmp_path: Path) -> None:
    paper = json.loads((write_results(tmp_path, []) / "paper.json").read_text())["test_nll"]
    assert tuple(paper) == ARCHITECTURES
    assert [paper[name]["lr"] for name in ARCHITECTURES] == [98.86, 95.40, 94.82, 94.73]
    assert [paper[name]["crn"] for name in ARCHITECTURES] == [98.28, 95.03, 93.67, 92.79]
