"""Every shipped estimator, trained alike."""

from pathlib import Path

import pytest

from lightning_modules import RESULTS
from lightning_modules.grid.plan import status_of
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
    kinds = {entry.estimator: (entry.title, entry.objective) for entry in read_runs(tmp_path, "race_runs.json")}
    assert kinds == {
        "lr": ("LR", "elbo"),
        "straight_through": ("Straight-through (biased)", "elbo"),
        "vimco": ("VIMCO (climbs the multi-sample bound)", "multi_sample"),
    }


def test_the_published_race_is_one_of_all_shipped_estimators_with_the_recipe_of_the_command(tmp_path: Path) -> None:
    recorded = {entry.estimator: entry.config for entry in read_runs(RESULTS, "race_runs.json")}
    planned = [race_run(config, tmp_path) for config in shipped_names()]
    assert len(planned) == len(recorded) > 20
    for run in planned[::6]:
        changed = differences(recorded[run.estimator], settings_of(status_of(run).config))
        assert [key for key in changed if key.startswith(("model.", "data.", "trainer.max_"))] == []
