"""What makes two configs the same run."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from lightning_modules import CONFIGS
from lightning_modules.command_line.untrusted_configs import read_yaml
from lightning_modules.run.identity import NO_PART_OF_IDENTITY, RANKS, check_ranks, differences, settings_of
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
        assert not differences(older, today) or key.endswith(("baselines", "alpha")), key  # not at their defaults
    warm = today | {"model.lr_scheduler.init_args.warmup_steps": 7}
    older = {name: value for name, value in today.items() if not name.endswith("warmup_steps")}
    assert differences(older, warm) == {"model.lr_scheduler.init_args.warmup_steps": (0, 7)}


def test_options_that_classes_no_longer_take_are_accepted_at_what_was_their_default() -> None:
    today = settings_of(settings(*BASE, *LR).config)
    name = "model.estimator.init_args.variance_normalization"
    assert not differences(today | {name: False}, today)
    assert differences(today | {name: True}, today) == {name: (True, False)}


def test_an_argument_of_a_class_in_a_list_may_be_absent_too() -> None:
    today = settings_of(settings(*BASE, *LR).config)
    (key,) = (key for key in today if key.endswith("baselines"))
    older = today | {key: [{"class_path": each["class_path"]} for each in today[key]]}
    assert not differences(older, today)
    assert differences(today | {key: today[key][::-1]}, today)


def test_what_base_yaml_says_is_the_default_of_a_trainer_argument() -> None:
    today = settings_of(settings(*BASE, *LR).config)
    older = {name: value for name, value in today.items() if not name.startswith("trainer.")}
    assert not differences(older, today)
    assert differences(older, today | {"trainer.check_val_every_n_epoch": 1}), "Lightning's default, but null here"


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
    names = differences(settings_of(added), settings_of(bare))
    assert all(name.startswith("trainer.callbacks") for name in names)
    assert names


def test_where_things_lie_is_no_part_of_it() -> None:
    here = settings(*BASE, *LR, "--results_dir", "a", "--data.data_dir", "b").config
    assert not differences(settings_of(here), settings_of(settings(*BASE, *LR).config))
    assert "data.data_dir" in NO_PART_OF_IDENTITY


def test_a_checkpoint_of_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="the checkpoint's number of ranks is 2, expected 1; train on two"):
        check_ranks({"identity": {RANKS: 2}}, {RANKS: 1}, "train on two")
