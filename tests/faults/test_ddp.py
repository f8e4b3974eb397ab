"""One run on several ranks: the same mathematics as on one, and as hard to lose."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lightning_modules import cli
from lightning_modules.run.csv_files import read_variances
from tests.faults.ddp_gradients import CASES, STEPS, record
from tests.lightning_modules import commands_helper
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, folder_of, releg, releg_command
from tests.lightning_modules.run_states import assert_identical, curve, final_state, wait_for_new_checkpoint
from tests.processes import children_of, end_all

TWO_RANKS = (
    *("--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.strategy", "ddp"),
    *("--data.batch_size", "50"),
)
MEASURED = """
trainer:
  callbacks+:
    - class_path: lightning_modules.gradient_variance.GradientVariance
      init_args: {num_images: 3, samples_per_image: 4, steps: [0, 20]}
"""


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each rank recorded of each case: <case>-<rank>.pt."""
    folder = tmp_path_factory.mktemp("ranks")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, "-m", "tests.faults.ddp_gradients", str(folder)],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_of_50_images_have_the_gradients_of_one_process_with_100(case: str, two_ranks: Path) -> None:
    alone = record(case, ranks=1)
    first, second = (torch.load(two_ranks / f"{case}-{rank}.pt", weights_only=True) for rank in range(2))
    for step in range(STEPS):
        images = torch.cat([first["images"][step], second["images"][step]])
        assert torch.equal(images, alone.images[step])
        assert set(first["gradients"][step]) == set(alone.gradients[step])
        for name, expected in alone.gradients[step].items():
            for rank in (first, second):
                found = rank["gradients"][step][name]
                torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9 * largest(expected))
        for name, expected in alone.buffers[step].items():
            assert torch.equal(first["buffers"][step][name], second["buffers"][step][name]), name
            torch.testing.assert_close(first["buffers"][step][name], expected, rtol=1e-9, atol=0)
    if case == "lr-sum":
        assert bool((alone.buffers[-1]["estimator.baselines.1.average"] != 0).all())


def largest(values: Tensor) -> float:
    return float(values.abs().max())


def fit(results: Path, *arguments: str) -> list[str]:
    config = results / "measured.yaml"
    config.write_text(MEASURED)
    return commands_helper.fit(results, "--config", str(config), *arguments)


@pytest.fixture(scope="module")
def steps(is_full: bool) -> int:
    return 200 if is_full else 60


@pytest.fixture(scope="module")
def undisturbed(steps: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("undisturbed")
    done = releg(*fit(results, *TWO_RANKS, "--trainer.max_steps", str(steps)))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is finished") == 1
    return folder_of(results)


@pytest.mark.long
def test_a_run_on_two_ranks_is_written_once(undisturbed: Path, steps: int) -> None:
    names = {path.name for path in undisturbed.iterdir()}
    assert {"best.ckpt", "config.yaml", "last.ckpt", "metrics.csv", "provenance.json", "result.json"} <= names
    logged = [(step, metric) for step, metric, _ in curve(undisturbed)]
    assert len(logged) == len(set(logged))
    assert {step for step, metric in logged if metric == "val/elbo"} == {str(step) for step in range(20, steps + 1, 20)}
    measured = [
        (row["step"], row["layer"], row["kind"], row["estimator"])
        for row in read_variances(undisturbed / "grad_variance.csv")
    ]
    assert len(measured) == len(set(measured))
    assert {row[0] for row in measured} == {"0", "20", str(steps)}


@pytest.mark.long
def test_killed_on_one_rank_or_the_other_or_terminated_it_ends_in_identical_weights(
    undisturbed: Path, steps: int, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path)
    command = releg_command(*fit(tmp_path, *TWO_RANKS, "--trainer.max_steps", str(steps)))
    for victim, number in (("first", signal.SIGKILL), ("second", signal.SIGKILL), ("first", signal.SIGTERM)):
        process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        wait_for_new_checkpoint(folder, process)
        (second,) = (child for child in children_of(process.pid) if "lightning_modules.cli" in child.command)
        os.kill(process.pid if victim == "first" else second.pid, number)
        _, complaint = process.communicate(timeout=60)
        assert process.returncode in ((-number,) if victim == "first" else (-number, 2)), complaint
        assert "Traceback" not in complaint
        assert end_all([second.pid], patience=10) == 0, "a rank outlived the one that started it"
        assert not (folder / "result.json").exists()
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "continuing" in done.stderr
    assert_identical(final_state(undisturbed), final_state(folder))
    assert curve(undisturbed) == curve(folder)
    assert (undisturbed / "grad_variance.csv").read_text() == (folder / "grad_variance.csv").read_text()


@pytest.mark.long
def test_what_was_trained_on_two_ranks_can_be_tested_on_one(undisturbed: Path, tmp_path: Path) -> None:
    arguments = fit(tmp_path, "--ckpt_path", str(undisturbed / "best.ckpt"), "--data.batch_size", "50")
    assert cli.main(["test", *arguments[1:]]) == 0
