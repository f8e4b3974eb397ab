"""Where a run's files are, and who may write there."""

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from lightning_modules.run import folder as run_folder
from lightning_modules.run.folder import find_run_folder, read_config, save_config
from lightning_modules.run.identity import settings_of
from tests.lightning_modules.commands_helper import settings

BASE = ["--config", "base.yaml", "--model.layers", "[3,2]"]
LR = ["--config", "estimator/likelihood_ratio.yaml"]


def folder_of(results: Path, *arguments: str) -> str:
    given = settings(*BASE, *arguments, "--results_dir", str(results))
    return str(find_run_folder(given).relative_to(results / "runs"))


def test_folders_are_named_after_the_shipped_config_or_the_class(tmp_path: Path) -> None:
    path = "releg.estimators.likelihood_ratio.LikelihoodRatio"
    for config in ("likelihood_ratio", "likelihood_ratio_plain", "likelihood_ratio_average"):
        assert folder_of(tmp_path, "--config", f"estimator/{config}.yaml") == f"2-3/{config}/seed0"
    assert folder_of(tmp_path, *LR, "--config", "estimator/arm.yaml") == "2-3/arm/seed0"
    assert (
        folder_of(tmp_path, "--config", "estimator/arm.yaml", "--model.estimator", path) == "2-3/likelihood_ratio/seed0"
    )


def test_a_run_is_found_by_its_config_where_others_have_left_holes(tmp_path: Path) -> None:
    home = tmp_path / "runs" / "2-3" / "likelihood_ratio"
    save_config(home / "seed0-2", settings(*BASE, *LR).config)
    assert folder_of(tmp_path, *LR) == "2-3/likelihood_ratio/seed0-2"
    assert folder_of(tmp_path, *LR, "--model.weight_decay", "0") == "2-3/likelihood_ratio/seed0"
    save_config(home / "seed0", settings(*BASE, *LR, "--data.batch_size", "7").config)
    assert folder_of(tmp_path, *LR, "--model.weight_decay", "0") == "2-3/likelihood_ratio/seed0-3"


def test_a_damaged_config_of_another_seed_stops_no_run(tmp_path: Path) -> None:
    damaged = tmp_path / "runs" / "2-3" / "likelihood_ratio" / "seed10" / "config.yaml"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("")
    assert folder_of(tmp_path, *LR, "--seed_everything", "1") == "2-3/likelihood_ratio/seed1"


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
