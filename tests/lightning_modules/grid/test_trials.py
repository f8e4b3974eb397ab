"""The plan of the trials; that runs are made, stopped and continued is tested with the grid."""

import json
from pathlib import Path

import pytest

from lightning_modules import RESULTS
from lightning_modules.grid import trials
from lightning_modules.grid.options import budget_file
from lightning_modules.grid.plan import GridRun, RunStatus, plan, status_of
from lightning_modules.grid.studies import StudyError
from lightning_modules.grid.trials import (
    LONG,
    SHORT,
    Trial,
    fixed_bits,
    long_trials,
    short_trials,
    warmup_trials,
    without_warmup,
)
from lightning_modules.run.identity import differences, settings_of
from releg.architecture import architecture_name
from releg.naming.file_names import TRIALS
from releg.naming.names import PUBLISHED_BUDGET, SCHEDULES


def test_every_trial_is_a_run_with_the_rate_shape_steps_and_bits_it_names(tmp_path: Path) -> None:
    planned = [*short_trials(), *fixed_bits(), *warmup_trials(), *without_warmup()]
    assert len({trial.run(tmp_path) for trial in planned}) == len(planned) == 31
    for trial in [*planned[:21:4], *planned[21:23], *planned[24:26]]:  # all estimators, shapes, bits and warm-ups
        config = status_of(trial.run(tmp_path)).config
        assert config["model"]["optimizer"]["init_args"]["lr"] == trial.rate
        scheduler = (config["model"].get("lr_scheduler") or {"class_path": "."})["class_path"]
        assert scheduler.rpartition(".")[2] == SCHEDULES[trial.shape].class_name
        settings = (config["model"].get("lr_scheduler") or {}).get("init_args") or {}
        assert settings.get("warmup_steps", 0) == trial.warmup
        assert architecture_name(config["model"]["layers"]) == trial.architecture
        assert config["trainer"]["max_steps"] == trial.steps
        assert config["data"].get("init_args", config["data"])["binarization"] == trial.binarization
        name = {"lr": "LikelihoodRatio", "crn": "CommonRandomNumbers"}[trial.estimator]
        assert config["model"]["estimator"]["class_path"].endswith(name)


@pytest.mark.parametrize(
    ("trial", "differs"),
    [
        (next(fixed_bits()), "data.binarization"),
        *((trial, "model.lr_scheduler.init_args.warmup_steps") for trial in without_warmup()),
    ],
)
def test_a_trial_of_a_cell_is_the_run_of_the_published_table_but_for_one_setting(
    trial: Trial, differs: str, tmp_path: Path
) -> None:
    cells = plan(budget_file(PUBLISHED_BUDGET), 1, tmp_path)
    (cell,) = (run for run in cells if (run.architecture, run.estimator) == (trial.architecture, trial.estimator))
    own, published = (settings_of(status_of(run).config) for run in (trial.run(tmp_path), cell))
    not_shown = {"model.test_samples", "trainer.callbacks"}  # test bounds and gradient variances
    assert differences(own, published).keys() - not_shown == {differs}


@pytest.mark.parametrize(("kept", "made"), [(3, list(warmup_trials())[3:]), (None, list(fixed_bits()))])
def test_recorded_trials_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int | None, made: list[Trial]
) -> None:
    shipped = json.loads((RESULTS / TRIALS).read_bytes())
    on_drawn_bits = [entry for entry in shipped if entry["binarization"] == "dynamic"]
    (tmp_path / TRIALS).parent.mkdir(parents=True)
    (tmp_path / TRIALS).write_text(json.dumps(on_drawn_bits[:kept]))
    asked: list[GridRun] = []

    def refuse(runs: list[GridRun], *more: object) -> list[RunStatus]:
        asked.extend(runs)
        if runs:
            raise StudyError("nothing is made in this test")
        return []

    monkeypatch.setattr(trials, "make_missing", refuse)
    assert trials.main(["--missing", "--results", str(tmp_path)]) == 1
    assert asked == [trial.run(tmp_path / "recipe") for trial in made]


@pytest.mark.parametrize(("best_of_lr", "count"), [((0.01, "cosine"), 4), ((0.003, "linear"), 2)])
def test_the_best_recipe_of_each_estimator_is_tried_for_longer_with_both(
    best_of_lr: tuple[float, str], count: int
) -> None:
    best = {"lr": best_of_lr, "crn": (0.003, "linear")}
    short = [
        {"estimator": trial.estimator, "rate": trial.rate, "shape": trial.shape}
        | {"val/elbo": -1.0 if (trial.rate, trial.shape) == best[trial.estimator] else -2.0}
        for trial in short_trials()
    ]
    longer = list(long_trials(short))
    assert len(longer) == count
    assert {(trial.rate, trial.shape) for trial in longer} == set(best.values())
    assert {trial.steps for trial in longer} == {LONG} != {SHORT}
    assert Trial("lr", *best_of_lr, LONG) in longer
