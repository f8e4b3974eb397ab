"""The plan of the trials."""

from collections import Counter
from pathlib import Path

from lightning_modules.grid.plan import status_of
from lightning_modules.studies.recipe import trials
from releg.architecture import architecture_name
from releg.records.names import schedule_name


def test_every_trial_is_a_run_with_the_rate_shape_steps_and_bits_it_names(tmp_path: Path) -> None:
    planned = [*trials()]
    assert len({trial.run(tmp_path) for trial in planned}) == len(planned)
    for trial in planned[::5]:
        config = status_of(trial.run(tmp_path)).config
        assert config["model"]["optimizer"]["init_args"]["lr"] == trial.rate
        scheduler = config["model"]["lr_scheduler"]
        assert schedule_name(scheduler["class_path"]) == trial.shape
        assert scheduler["init_args"]["warmup_steps"] == trial.warmup
        assert architecture_name(config["model"]["layers"]) == trial.architecture
        assert config["trainer"]["max_steps"] == trial.steps
        assert config["data"].get("init_args", config["data"])["binarization"] == trial.binarization
        name = {"lr": "LikelihoodRatio", "crn": "CommonRandomNumbers"}[trial.estimator]
        assert config["model"]["estimator"]["class_path"].endswith(name)


def test_both_estimators_have_as_many_trials() -> None:
    counts = Counter(trial.estimator for trial in trials())
    assert counts["lr"] == counts["crn"]
