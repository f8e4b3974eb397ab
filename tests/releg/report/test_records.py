"""Records from made-up results."""

from pathlib import Path
from typing import Any

from releg.report.records import write_records
from tests.releg.report.synthetic import PROVENANCE, entry, write_results


def runs(seconds: float, bounds: list[float], steps: int, estimator: str = "crn") -> list[dict[str, Any]]:
    made = [entry("200-200", estimator, seed, bound, steps) for seed, bound in enumerate(bounds)]
    one_thread = {"provenance": [PROVENANCE | {"torch_threads": 1}]}
    return [run | one_thread | {"result": run["result"] | {"training_seconds": seconds}} for run in made]


def test_the_fastest_three_seeds_whose_mean_reaches_the_papers_bound_come_first(tmp_path: Path) -> None:
    slow, fast = runs(1200.0, [98.0, 98.1, 98.2], 9000), runs(240.0, [98.1, 98.3, 98.4], 3000)
    higher, two = runs(60.0, [98.3, 98.3, 98.4], 1000), runs(30.0, [90.0, 90.0], 500)
    text = write_records(write_results(tmp_path, [*slow, *fast, *higher, *two, *runs(50.0, [99.0] * 3, 900, "lr")]))
    of_lr, of_crn = text.split("## ")[1:]
    assert "98.86, the paper's LR" in of_lr
    assert [line.split(" | ")[1:3] for line in of_lr.splitlines() if line.startswith("| CRN")] == [
        ["1.0", "1,000"],
        ["4.0", "3,000"],
        ["20.0", "9,000"],
    ]
    assert [line.split(" | ")[1:6] for line in of_crn.splitlines() if line.startswith("| CRN")] == [
        ["4.0", "3,000", "RMSprop 0.001, constant", "98.27", "98.10, 98.30, 98.40"],
        ["20.0", "9,000", "RMSprop 0.001, constant", "98.10", "98.00, 98.10, 98.20"],
    ]


def test_an_estimator_with_fewer_seeds_stands_where_it_has_nothing_else(tmp_path: Path) -> None:
    crn, alone = runs(240.0, [98.1, 98.1, 98.1], 3000), runs(60.0, [98.0], 1000)
    lr = runs(600.0, [98.0], 9000, "lr")
    text = write_records(write_results(tmp_path, [*crn, *alone, *lr])).split("## ")[2]
    cells = [line.split(" | ") for line in text.splitlines() if line.startswith(("| CRN", "| LR"))]
    assert [(each[0], each[2], each[6]) for each in cells] == [("| CRN", "3,000", "0, 1, 2"), ("| LR", "9,000", "0")]


def test_without_a_record_there_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "records.md").touch()
    assert write_records(write_results(tmp_path, runs(60.0, [120.0] * 3, 100))) == ""
    assert not (tmp_path / "records.md").exists()
