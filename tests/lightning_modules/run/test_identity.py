"""What makes two configs the same run."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import pytorch_lightning as pl

from lightning_modules import CONFIGS
from lightning_modules.command_line.untrusted_configs import read_yaml
from lightning_modules.run import identity
from lightning_modules.run.identity import NO_PART_OF_IDENTITY, differences, settings_of
from lightning_modules.run.settings import class_defaults, default_config
from tests.lightning_modules.commands_helper import settings

BASE = ["--config", "base.yaml", "--model.layers", "[3,2]"]
LR = ["--config", "estimator/likelihood_ratio.yaml"]


def leaves(config: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key)


def without(config: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    config = copy.deepcopy(config)
    inner = config
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return config


def test_a_key_that_has_its_default_can_be_taken_out() -> None:
    """Of every setting of model, data and Trainer: what is saved without it is the same run."""
    chosen = ["--model.layers", "[3,2]", "--model.estimator", "releg.estimators.gumbel_softmax.GumbelSoftmax"]
    config = settings(*chosen).config
    needed = {("model", "layers"), ("model", "estimator", "class_path"), ("model", "optimizer", "init_args", "lr")}
    needed |= {("trainer", name) for name in read_yaml(CONFIGS / "base.yaml")["trainer"]}  # other than Lightning's
    paths = [path for path in leaves(config) if path not in needed]
    assert len(paths) > 30
    for path in paths:
        assert not differences(settings_of(without(config, path)), settings_of(config)), path


def test_settings_written_before_a_class_had_an_argument_are_those_of_its_default() -> None:
    """As in checkpoints and runs.json, which keep the settings of their time."""
    config = settings(*BASE, *LR, "--config", "schedule/linear.yaml").config
    today = settings_of(config)
    added = [key for key in today if ".init_args." in key and key != "model.optimizer.init_args.lr"]
    assert "model.lr_scheduler.init_args.warmup_steps" in added
    for key in added:
        older = {name: value for name, value in today.items() if name != key}
        default = class_defaults(today[key.split(".init_args.")[0] + ".class_path"]).get(key.rpartition(".")[2])
        assert bool(differences(older, today)) == (today[key] != default), key
    warm = today | {"model.lr_scheduler.init_args.warmup_steps": 7}
    older = {name: value for name, value in today.items() if not name.endswith("warmup_steps")}
    assert differences(older, warm) == {"model.lr_scheduler.init_args.warmup_steps": (0, 7)}


def test_an_argument_of_a_class_in_a_list_may_be_absent_too() -> None:
    today = settings_of(settings(*BASE, *LR).config)
    (key,) = (key for key in today if key.endswith("baselines"))
    older = today | {key: [{"class_path": each["class_path"]} for each in today[key]]}
    assert not differences(older, today)
    assert differences(today | {key: today[key][::-1]}, today)


def test_a_trainer_argument_that_an_upgrade_adds_is_the_same_run_at_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = settings(*BASE, *LR).config
    upgraded = copy.deepcopy(default_config())
    upgraded["trainer"]["novelty"] = "off"
    monkeypatch.setattr(identity, "default_config", lambda: upgraded)
    identity._defaults.cache_clear()
    try:
        for novelty, same in (("off", True), ("on", False)):
            newer = {**config, "trainer": {**config["trainer"], "novelty": novelty}}
            assert (not differences(settings_of(config), settings_of(newer))) == same
    finally:
        identity._defaults.cache_clear()


@pytest.mark.parametrize(
    "other",
    [
        ["--seed_everything", "1"],
        ["--model.optimizer.init_args.lr", "0.002"],
        ["--model.estimator.init_args.samples", "2"],
        ["--model.estimator.init_args.baselines", "[{class_path: releg.baselines.RunningAverage}]"],
        ["--config", "schedule/linear.yaml"],
        ["--data.batch_size", "50"],
        ["--config", "data/fashion_mnist.yaml"],
        ["--trainer.max_steps", "7"],
    ],
)
def test_another_value_is_another_run(other: list[str]) -> None:
    one, two = (settings_of(settings(*BASE, *LR, *more).config) for more in ([], other))
    assert differences(one, two)


def test_callbacks_that_the_user_adds_are_part_of_it_and_those_of_every_run_are_not() -> None:
    config = settings(*BASE, *LR).config
    bare = without(config, ("trainer", "callbacks"))
    added = settings(*BASE, *LR, "--trainer.callbacks+=pytorch_lightning.callbacks.DeviceStatsMonitor").config
    assert len(added["trainer"]["callbacks"]) == len(config["trainer"]["callbacks"]) + 1
    assert not differences(settings_of(config), settings_of(bare))
    assert set(differences(settings_of(added), settings_of(bare))) == {"trainer.callbacks"}


def test_where_things_lie_is_no_part_of_it() -> None:
    here = settings(*BASE, *LR, "--results_dir", "a", "--data.data_dir", "b").config
    assert not differences(settings_of(here), settings_of(settings(*BASE, *LR).config))
    assert "data.data_dir" in NO_PART_OF_IDENTITY


def test_defaults_are_those_of_lightning() -> None:
    import inspect

    names = set(inspect.signature(pl.Trainer).parameters)
    assert {"max_steps", "accumulate_grad_batches"} <= set(default_config()["trainer"]) <= names
