"""Checkpoints that carry code, or belong to another run, given to every command that takes one."""

import os
from pathlib import Path

import pytest
import torch

from lightning_modules import cli
from lightning_modules.run.checkpoints import load_run_checkpoint
from tests.lightning_modules import commands_helper
from tests.lightning_modules.commands_helper import SHORT, folder_of


def fit(results: Path, *arguments: str, estimator: str = "likelihood_ratio") -> list[str]:
    return commands_helper.fit(results, *SHORT, *arguments, estimator=estimator)


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err + shown.out
    return shown.err.splitlines()[-1]


@pytest.mark.parametrize("command", ["validate", "test", "variance", "compare"])
def test_code_in_a_checkpoint_is_not_run_by_any_command(
    command: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = tmp_path / "evil.ckpt"
    torch.save({**load_run_checkpoint(run / "best.ckpt"), "payload": Payload(tmp_path / "pwned")}, evil)
    (tmp_path / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    own = command in ("variance", "compare")
    arguments = ["--ckpt", str(evil)] if own else fit(tmp_path, "--ckpt_path", str(evil))[1:]
    assert cli.main([command, *arguments]) == 2
    assert f"{evil} holds something other than tensors and plain values" in complaint(capsys)
    assert not (tmp_path / "pwned").exists()


def test_code_in_the_checkpoint_of_an_interrupted_run_is_not_run(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    folder = folder_of(tmp_path)
    folder.mkdir(parents=True)
    torch.save({**load_run_checkpoint(run / "last.ckpt"), "payload": Payload(tmp_path / "pwned")}, folder / "last.ckpt")
    assert cli.main(fit(tmp_path)) == 0
    assert "without running code, so it was not loaded" in caplog.text
    assert not (tmp_path / "pwned").exists()
    assert (folder / "result.json").read_text().count("test/elbo") == 1


@pytest.mark.parametrize(
    ("arguments", "estimator", "difference"),
    [
        (["--model.layers", "[12,7]"], "likelihood_ratio", "architecture is 6-12, expected 7-12"),
        ([], "common_random_numbers", "estimator is LikelihoodRatio, expected CommonRandomNumbers"),
        (["--data.binarization", "fixed"], "likelihood_ratio", "data is "),
        (
            ["--model.estimator.init_args.baselines", "[{class_path: releg.baselines.RunningAverage}]"],
            "likelihood_ratio",
            "estimator.baselines.0.average has shape none: it is missing, expected (2,)",
        ),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_naming_the_difference(
    arguments: list[str],
    estimator: str,
    difference: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = fit(tmp_path, *arguments, "--ckpt_path", str(run / "best.ckpt"), estimator=estimator)
    assert cli.main(["test", *given[1:]]) == 2
    said = complaint(capsys)
    assert f"releg: the checkpoint's {difference}" in said
    assert said.endswith("use the config.yaml of the checkpoint's run")
