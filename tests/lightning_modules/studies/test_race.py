"""Every shipped estimator, trained alike."""

from pathlib import Path

import pytest

from lightning_modules.grid.options import budget_file
from lightning_modules.grid.plan import plan, status_of
from lightning_modules.run.identity import differences, settings_of
from lightning_modules.shipped_estimators import shipped_names
from lightning_modules.studies import race
from lightning_modules.studies.race import main, race_run
from releg.records.runs import read_runs
from tests.lightning_modules.run_states import leave_finished


def test_every_shipped_estimator_takes_part_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make_missing(runs: list[race.GridRun], *_: object) -> list[race.RunStatus]:
        for run in runs:
            made.append(run.estimator)
            leave_finished(status_of(run))
        return [status_of(run) for run in runs]

    monkeypatch.setattr(race, "shipped_names", lambda: ["likelihood_ratio", "straight_through", "vimco"])
    monkeypatch.setattr(race, "make_missing", make_missing)
    assert main(["--results", str(tmp_path)]) == main(["--results", str(tmp_path)]) == 0
    assert made == ["lr", "straight_through", "vimco"]
    kinds = {entry.estimator: (entry.unbiased, entry.objective) for entry in read_runs(tmp_path, "race_runs.json")}
    assert kinds == {"lr": (True, "elbo"), "straight_through": (False, "elbo"), "vimco": (True, "multi_sample")}


def test_the_runs_of_the_paper_s_estimators_are_those_of_the_quick_grid(tmp_path: Path) -> None:
    assert len(shipped_names()) > 20
    for config, cell in zip(
        ("likelihood_ratio", "common_random_numbers"), plan(budget_file("quick"), 1, tmp_path)[:2], strict=True
    ):
        raced, planned = (settings_of(status_of(run).config) for run in (race_run(config, tmp_path), cell))
        assert not differences(raced, planned)
