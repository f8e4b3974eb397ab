"""Files of another run, keys taken out, two starts at one moment: a run stays what its settings say."""

import multiprocessing
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_modules import cli
from lightning_modules.run import folder as run_folder
from lightning_modules.run.settings import Settings
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, TINY, releg_command
from tests.lightning_modules.run_states import assert_identical, final_state, result

SHORT = ["--trainer.max_steps", "6", "--trainer.val_check_interval", "2", "--trainer.limit_test_batches", "1"]


def settings(results: Path, *arguments: str) -> list[str]:
    chosen = ["--config", "estimator/likelihood_ratio.yaml", "--results_dir", str(results)]
    return [*TINY, *SHORT, *chosen, *arguments]


def folder_of(results: Path, name: str = "seed0") -> Path:
    return results / "runs" / "6-12" / "likelihood_ratio" / name


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    results = tmp_path_factory.mktemp("run")
    assert cli.main(["fit", *settings(results)]) == 0
    return folder_of(results)


def test_with_keys_taken_out_of_its_config_a_run_is_finished_and_with_a_changed_value_it_is_another(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    shutil.copytree(run.parents[3], tmp_path, dirs_exist_ok=True)
    path = folder_of(tmp_path) / "config.yaml"
    config = yaml.safe_load(path.read_text())
    for part, key in (("trainer", "accumulate_grad_batches"), ("model", "loss"), ("data", "eval_batch_size")):
        del config[part][key]
    del config["trainer"]["barebones"], config["model"]["estimator"]["init_args"]["samples"]
    path.write_text(yaml.safe_dump(config))
    assert cli.main(["fit", *settings(tmp_path)]) == 0
    assert "is finished already" in caplog.text
    config["model"]["weight_decay"] = 0.002
    path.write_text(yaml.safe_dump(config))
    assert cli.main(["fit", *settings(tmp_path)]) == 0
    assert (folder_of(tmp_path, "seed0-2") / "result.json").is_file()


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (["--seed_everything", "1"], "the checkpoint's seed_everything is 1, expected 0"),
        (["--model.optimizer.init_args.lr", "0.1"], "the checkpoint's model.optimizer.init_args.lr is 0.1, expected 0"),
        (["--data.batch_size", "20"], "the checkpoint's data.batch_size is 20, expected 100"),
    ],
)
def test_checkpoints_of_another_run_are_passed_over_or_refused(
    other: list[str],
    difference: str,
    run: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("INFO", logger="releg")
    assert cli.main(["fit", *settings(tmp_path / "foreign", *other)]) == 0
    (foreign,) = (tmp_path / "foreign").rglob("last.ckpt")
    here = folder_of(tmp_path)
    here.mkdir(parents=True)
    shutil.copyfile(run / "config.yaml", here / "config.yaml")
    for name in ("last.ckpt", "best.ckpt"):
        shutil.copyfile(foreign.with_name(name), here / name)
    assert cli.main(["test", *settings(tmp_path), "--ckpt_path", str(here / "best.ckpt")]) == 2
    assert difference in capsys.readouterr().err
    assert cli.main(["variance", "--ckpt", str(here / "best.ckpt")]) == 2
    assert difference in capsys.readouterr().err
    assert cli.main(["fit", *settings(tmp_path)]) == 0
    assert f"last.ckpt is of another run: {difference}" in caplog.text
    assert_identical(final_state(run), final_state(here))
    assert result(here) == result(run)


def claim(arguments: list[str], start: Any, answers: Any) -> None:
    """What a process does that starts a run; the config takes a while to be written."""
    save = run_folder.save_config

    def slowly(folder: Path, config: Any) -> None:
        time.sleep(0.1)
        save(folder, config)

    run_folder.save_config = slowly
    settings = Settings("fit", arguments)
    start.wait()
    with run_folder.claimed_run_folder(settings) as folder:
        saved = run_folder.read_config(folder)["model"]["weight_decay"]
        answers.put((settings.config["model"]["weight_decay"], saved, folder.name))
        time.sleep(0.3)  # trains


def test_runs_that_start_at_one_moment_have_folders_of_their_own(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("fork")  # with everything imported, they start together
    decays = [0.001, 0.002, 0.003, 0.004]
    start, answers = processes.Barrier(len(decays)), processes.Queue()
    workers = [
        processes.Process(target=claim, args=(settings(tmp_path, f"--model.weight_decay={decay}"), start, answers))
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


@pytest.mark.long
def test_two_commands_at_one_moment_end_as_each_does_alone(run: Path, tmp_path: Path) -> None:
    commands = [
        releg_command("fit", *settings(tmp_path, "--model.optimizer.init_args.lr", rate)) for rate in ("0.001", "0.01")
    ]
    both = [subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT) for command in commands]
    assert [process.wait() for process in both] == [0, 0]
    rates = {}
    for name in ("seed0", "seed0-2"):
        folder = folder_of(tmp_path, name)
        rates[yaml.safe_load((folder / "config.yaml").read_text())["model"]["optimizer"]["init_args"]["lr"]] = folder
    assert sorted(rates) == [0.001, 0.01]
    assert_identical(final_state(run), final_state(rates[0.001]))
    assert result(run) != result(rates[0.01])
