"""The plan of the trials; that runs are made, stopped and continued is tested with the grid."""

from pathlib import Path

import pytest

from lightning_modules.grid.plan import status_of
from lightning_modules.grid.trials import LONG, SHORT, Trial, fixed_bits, long_trials, short_trials, warmup_trials
from releg.architecture import architecture_name
from releg.naming.names import SCHEDULES


def test_every_trial_is_a_run_with_the_rate_shape_steps_and_bits_it_names(tmp_path: Path) -> None:
    trials = [*short_trials(), *fixed_bits(), *warmup_trials()]
    assert len({trial.run(tmp_path) for trial in trials}) == len(trials) == 25
    for trial in [*trials[:21:4], *trials[21:23], trials[-1]]:  # both estimators, every shape, fixed bits, warm-ups
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
