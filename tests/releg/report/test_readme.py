"""The page about the files in a folder of results."""

from pathlib import Path

from releg.report.readme import write_readme
from releg.report.table1 import write_table1
from tests.releg.report.synthetic import entry, write_results


def test_the_page_names_the_runs_that_had_uncommitted_changes(tmp_path: Path) -> None:
    runs = [entry("200-200", "lr", seed, 112.0) for seed in range(2)]
    changed = {**runs[1]["provenance"][0], "uncommitted_changes": True}
    write_results(tmp_path, [runs[0], {**runs[1], "provenance": [*runs[1]["provenance"], changed]}])
    words = "| commit | c0ffee; c0ffee with uncommitted changes (200-200 LR seed 1) |"
    assert words in write_readme(tmp_path).read_text()


def test_the_page_says_of_a_longer_budget_whether_its_runs_are_finished(tmp_path: Path) -> None:
    write_results(tmp_path, [entry("200-200", "lr", 0, 101.0, 200_000)])
    for runs, words in (
        ([], "table and figure of runs of 2,000,000 steps that are not finished"),
        ([entry("200-200", "lr", 0, 98.0, 2_000_000)], "weights of cells that were trained for 2,000,000 steps"),
    ):
        write_table1(write_results(tmp_path / "paper", runs))
        (line,) = (line for line in write_readme(tmp_path).read_text().splitlines() if "| `paper/` |" in line)
        assert words in line
