"""The plan of the trials; that runs are made, stopped and continued is tested with the grid."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from lightning_modules.grid.options import budget_file
from lightning_modules.grid.plan import GridRun, RunStatus, plan, status_of
from lightning_modules.run.identity import differences, settings_of
from lightning_modules.studies import recipe as trials
from lightning_modules.studies.recipe import (
    BUDGET_RECIPE,
    LONG,
    RATES,
    SHORT,
    Recipe,
    Trial,
    fixed_bits,
    full_trials,
    long_trials,
    short_trials,
    warmup_trials,
    without_warmup,
)
from lightning_modules.studies.study import StudyError
from releg.architecture import architecture_name
from releg.records.file_names import TRIALS
from releg.records.names import BUDGETS, PUBLISHED_BUDGET, SCHEDULES


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


def entry_of(trial: Trial, elbo: float = -2.0) -> dict[str, Any]:
    """A made-up record of a trial."""
    return {
        **trial._asdict(),
        "val/elbo": elbo,
        "units_in_use": [1],
        "best_step": 1,
        "minutes": 1.0,
        "commit": "c0ffee",
    }


def entries_of_short_trials(best: dict[str, Recipe]) -> list[dict[str, Any]]:
    return [
        entry_of(trial, -1.0 if (trial.rate, trial.shape) == best[trial.estimator] else -2.0)
        for trial in short_trials()
    ]


SHORT_ENTRIES = entries_of_short_trials({"lr": (0.003, "cosine"), "crn": (0.01, "cosine")})
LONG_ENTRIES = [entry_of(trial, -trial.rate) for trial in long_trials(SHORT_ENTRIES)]  # the lowest rate is the best
FIRST = [*map(entry_of, warmup_trials()), *SHORT_ENTRIES]
SECOND = [*LONG_ENTRIES, *map(entry_of, full_trials(LONG_ENTRIES)), *map(entry_of, without_warmup())]


@pytest.mark.parametrize(
    ("known", "made"),
    [
        (FIRST[:3], list(warmup_trials())[3:]),
        (FIRST, list(long_trials(SHORT_ENTRIES))),
        ([*FIRST, *LONG_ENTRIES], list(full_trials(LONG_ENTRIES))),
        ([*FIRST, *SECOND], list(fixed_bits())),
    ],
)
def test_recorded_trials_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: list[dict[str, Any]], made: list[Trial]
) -> None:
    (tmp_path / TRIALS).parent.mkdir(parents=True)
    (tmp_path / TRIALS).write_text(json.dumps(known))
    asked: list[GridRun] = []

    def refuse(runs: list[GridRun], *more: object) -> list[RunStatus]:
        asked.extend(runs)
        if runs:
            raise StudyError("nothing is made in this test")
        return []

    monkeypatch.setattr(trials, "make_missing", refuse)
    assert trials.main(["--missing", "--results", str(tmp_path)]) == 1
    assert asked == [trial.run(tmp_path / "recipe") for trial in made]


def test_an_interruption_loses_no_record_although_all_trials_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / TRIALS).parent.mkdir(parents=True)
    (tmp_path / TRIALS).write_text(json.dumps([*FIRST, *SECOND]))
    remade = list(warmup_trials())

    def make(runs: list[GridRun], *more: object) -> list[None]:
        if len(runs) > len(remade):
            raise KeyboardInterrupt
        return [None] * len(runs)

    monkeypatch.setattr(trials, "make_missing", make)
    monkeypatch.setattr(trials, "_entry", lambda trial, _: entry_of(trial, -7.0))
    with pytest.raises(KeyboardInterrupt):
        trials.main(["--results", str(tmp_path)])
    entries = json.loads((tmp_path / TRIALS).read_text())
    assert entries == [*(entry_of(trial, -7.0) for trial in remade), *FIRST[len(remade) :], *SECOND]


def test_the_time_of_a_stage_does_not_count_as_the_start_of_the_next_ones_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []

    def make(runs: list[GridRun], what: str, jobs: int, lock: int, start_of_a_process: float) -> list[None]:
        starts.append(start_of_a_process)
        return [None] * len(runs)

    for name in ("process_time", "monotonic"):
        monkeypatch.setattr(time, name, itertools.count(5.0, 1000.0).__next__)  # 1,000 seconds from call to call
    monkeypatch.setattr(trials, "make_missing", make)
    monkeypatch.setattr(trials, "_entry", lambda trial, _: entry_of(trial))
    assert trials.main(["--results", str(tmp_path)]) == 0
    assert starts == [5.0] * 6


@pytest.mark.parametrize(("shape_of_lr", "count"), [("cosine", 8), ("hold_then_linear", 14), ("linear", 12)])
def test_every_rate_in_the_best_shapes_and_the_recipe_of_the_budgets_are_tried_for_longer_with_both(
    shape_of_lr: str, count: int
) -> None:
    longer = list(long_trials(entries_of_short_trials({"lr": (0.003, shape_of_lr), "crn": (0.01, "cosine")})))
    assert len(set(longer)) == len(longer) == count
    assert {trial.steps for trial in longer} == {LONG} != {SHORT}
    recipes = {(rate, shape) for rate in RATES for shape in (shape_of_lr, "cosine")} | {BUDGET_RECIPE}
    for estimator in ("lr", "crn"):
        assert {(trial.rate, trial.shape) for trial in longer if trial.estimator == estimator} == recipes


def test_each_estimator_is_trained_with_its_best_and_the_common_recipe_for_as_long_as_the_published_table() -> None:
    best, common = {"lr": (0.001, "cosine"), "crn": (0.01, "cosine")}, (0.003, "cosine")
    elbo = dict.fromkeys(best.items(), -1.0) | {("lr", common): -1.5, ("crn", common): -1.2}
    long = [
        entry_of(trial, elbo.get((trial.estimator, (trial.rate, trial.shape)), -2.0))
        for trial in long_trials(SHORT_ENTRIES)
    ]
    steps = BUDGETS[PUBLISHED_BUDGET]
    expected = [Trial(name, *recipe, steps) for name in best for recipe in (best[name], common)]
    assert list(full_trials(long)) == expected


def test_the_recipe_of_the_budgets_is_not_trained_twice_without_a_warm_up() -> None:
    long = [entry_of(Trial("lr", *BUDGET_RECIPE, LONG), -1.0), entry_of(Trial("lr", 0.001, "cosine", LONG))]
    assert list(full_trials(long)) == []
    assert Trial("lr", *BUDGET_RECIPE, BUDGETS[PUBLISHED_BUDGET]) in list(without_warmup())


@pytest.mark.parametrize("budget", ["quick", "standard", "converged"])
def test_the_recipe_of_the_budgets_is_the_one_in_their_files(budget: str, tmp_path: Path) -> None:
    run, *_ = plan(budget_file(budget), 1, tmp_path)
    model = status_of(run).config["model"]
    rate, shape = BUDGET_RECIPE
    assert model["optimizer"]["init_args"]["lr"] == rate
    assert model["lr_scheduler"]["class_path"].rpartition(".")[2] == SCHEDULES[shape].class_name
