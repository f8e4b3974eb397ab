"""Where a run's files are, and who may write there."""

import copy
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_modules.run import folder as run_folder
from lightning_modules.run.folder import find_run_folder, read_config, save_config
from lightning_modules.run.identity import differences, settings_of
from tests.lightning_modules.commands_helper import settings

BASE = ["--config", "base.yaml", "--model.layers", "[3,2]"]
LR = ["--config", "estimator/likelihood_ratio.yaml"]


def folder_of(results: Path, *arguments: str) -> str:
    given = settings(*BASE, *arguments, "--results_dir", str(results))
    return str(find_run_folder(given).relative_to(results / "runs"))


def test_folders_are_named_after_the_config_that_the_user_chose(tmp_path: Path) -> None:
    mine = tmp_path / "slow_average.yaml"
    baseline = {"class_path": "releg.baselines.RunningAverage", "init_args": {"decay": 0.99}}
    path = "releg.estimators.likelihood_ratio.LikelihoodRatio"
    estimator = {"class_path": path, "init_args": {"baselines": [baseline]}}
    mine.write_text(yaml.safe_dump({"model": {"estimator": estimator}}))
    for config in ("likelihood_ratio", "likelihood_ratio_plain", "likelihood_ratio_average"):
        assert folder_of(tmp_path, "--config", f"estimator/{config}.yaml") == f"2-3/{config}/seed0"
    assert folder_of(tmp_path, "--config", str(mine)) == "2-3/slow_average/seed0"
    assert folder_of(tmp_path, "--model.estimator", path) == "2-3/likelihood_ratio_plain/seed0"
    changed = ["--config", "estimator/leave_one_out.yaml", "--model.estimator.init_args.samples", "4"]
    assert folder_of(tmp_path, *changed) == "2-3/leave_one_out/seed0"  # the name of its class


def test_a_run_is_found_under_the_name_that_its_folder_had(tmp_path: Path) -> None:
    plain = ["--config", "estimator/likelihood_ratio_plain.yaml"]
    old = tmp_path / "runs" / "2-3" / "likelihood_ratio" / "seed0-2"
    save_config(old, settings(*BASE, *plain).config)
    assert folder_of(tmp_path, *plain) == "2-3/likelihood_ratio/seed0-2"
    assert folder_of(tmp_path, "--config", str(old / "config.yaml")) == "2-3/likelihood_ratio/seed0-2"
    assert folder_of(tmp_path, *LR) == "2-3/likelihood_ratio/seed0"


def test_a_config_saved_before_the_optimiser_could_be_chosen_is_the_same_run(tmp_path: Path) -> None:
    config = settings(*BASE, *LR).config
    old = copy.deepcopy(config)
    del old["model"]["optimizer"]
    old["model"] |= {"learning_rate": 0.001, "smoothing": 0.99, "epsilon": 1e-8}
    save_config(tmp_path, old)
    assert not differences(settings_of(read_config(tmp_path)), settings_of(config))


def test_runs_on_mnist_stay_where_they_were_and_others_have_their_own_folder(tmp_path: Path) -> None:
    fashion = ["--config", "data/fashion_mnist.yaml"]
    assert folder_of(tmp_path, *LR) == "2-3/likelihood_ratio/seed0"
    assert folder_of(tmp_path, *LR, *fashion) == "binarized_fashion_mnist/2-3/likelihood_ratio/seed0"
    here, elsewhere = (settings(*BASE, *LR, *fashion, *at).config for at in ([], ["--data.data_dir", "there"]))
    assert settings_of(elsewhere) == settings_of(here)


@pytest.mark.parametrize("text", ["model: [garbage", "\x80", "- 1", "model: 3", "model: {layers: [3]}"])
def test_a_damaged_config_is_told_with_what_to_do(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"config\.yaml is damaged, expected .*; delete it, and the command"):
        read_config(tmp_path)


def claim(arguments: list[str], start: Any, answers: Any) -> None:
    """What a process does that starts a run; the config takes a while to be written."""
    save = run_folder.save_config

    def slowly(folder: Path, config: Any) -> None:
        time.sleep(0.1)
        save(folder, config)

    run_folder.save_config = slowly
    given = settings(*arguments)
    start.wait()
    with run_folder.claimed_run_folder(given) as folder:
        saved = run_folder.read_config(folder)["model"]["weight_decay"]
        answers.put((given.config["model"]["weight_decay"], saved, folder.name))
        time.sleep(0.3)  # trains


def test_runs_that_start_at_one_moment_have_folders_of_their_own(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("fork")  # with everything imported, they start together
    decays = [0.001, 0.002, 0.003, 0.004]
    start, answers = processes.Barrier(len(decays)), processes.Queue()
    workers = [
        processes.Process(
            target=claim,
            args=([*BASE, *LR, "--results_dir", str(tmp_path), f"--model.weight_decay={decay}"], start, answers),
        )
        for decay in decays
    ]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sorted((wanted, saved) for wanted, saved, _ in found) == [(decay, decay) for decay in decays]
    assert sorted(name for *_, name in found) == ["seed0", "seed0-2", "seed0-3", "seed0-4"]
