"""One run on several ranks: the same mathematics as on one, and as hard to lose."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from lightning_fabric.plugins.environments import LightningEnvironment
from torch import Tensor, distributed

from lightning_modules import cli
from lightning_modules.run import ranks
from lightning_modules.run.csv_files import read_variances
from tests.faults.ddp_gradients import CASES, STEPS, record
from tests.lightning_modules import commands_helper
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, folder_of, releg, releg_command
from tests.lightning_modules.run_states import assert_identical, curve, final_state, wait_for_new_checkpoint
from tests.processes import children_of, end_all, listening_on

TWO_RANKS = (
    *("--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.strategy", "ddp"),
    *("--data.batch_size", "50"),
)
LOOPBACK = "0100007F"  # 127.0.0.1, on a machine whose bytes are in Intel's order
MEASURED = """
trainer:
  callbacks+:
    - class_path: lightning_modules.gradient_variance.GradientVariance
      init_args: {num_images: 3, samples_per_image: 4, steps: [0, 20]}
"""

Recorded = dict[str, list[dict[str, Tensor]]]


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


def test_the_ranks_of_one_machine_meet_where_no_other_machine_can_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "MASTER_ADDR",
        "MASTER_PORT",
        "LOCAL_RANK",
        "GLOO_SOCKET_IFNAME",
        "NCCL_SOCKET_IFNAME",
        "RELEG_PARENT",
    ):
        monkeypatch.setenv(name, "put back afterwards")
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = listening_on(os.getpid())
    ranks.share_machine(cast(Any, SimpleNamespace(num_devices=2, num_nodes=1)))
    lightning = LightningEnvironment()  # what it chooses itself if nobody says where to meet
    os.environ.setdefault("MASTER_ADDR", lightning.main_address)
    os.environ.setdefault("MASTER_PORT", str(lightning.main_port))
    distributed.init_process_group("gloo", rank=0, world_size=1)
    try:
        assert listening_on(os.getpid()) - before == {LOOPBACK}
    finally:
        distributed.destroy_process_group()


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
def test_killed_on_one_rank_or_the_other_it_ends_in_identical_weights(
    undisturbed: Path, steps: int, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path)
    command = releg_command(*fit(tmp_path, *TWO_RANKS, "--trainer.max_steps", str(steps)))
    for victim in ("first", "second"):
        process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        wait_for_new_checkpoint(folder, process)
        (second,) = (child for child in children_of(process.pid) if "lightning_modules.cli" in child.command)
        assert listening_on(process.pid) | listening_on(second.pid) == {LOOPBACK}
        os.kill(process.pid if victim == "first" else second.pid, signal.SIGKILL)
        _, complaint = process.communicate(timeout=60)
        assert process.returncode in ((-signal.SIGKILL,) if victim == "first" else (-signal.SIGKILL, 2)), complaint
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
def test_another_number_of_ranks_is_refused_with_one_sentence(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = fit(tmp_path, "--ckpt_path", str(undisturbed / "best.ckpt"))
    assert cli.main(arguments) == 2
    assert "the checkpoint's number of ranks is 2, expected 1; " in capsys.readouterr().err
    tested = ["test", *arguments[1:], "--data.batch_size", "50"]
    assert cli.main(tested) == 0  # what was trained on two can be tested on one
    assert cli.main(fit(tmp_path)) == 0
    refused = releg(*fit(tmp_path, *TWO_RANKS, "--ckpt_path", str(folder_of(tmp_path) / "best.ckpt")))
    assert refused.returncode == 2
    (complaint,) = (line for line in refused.stderr.splitlines() if line.startswith("releg: "))
    assert "the checkpoint's number of ranks is 1, expected 2; " in complaint
    assert "Traceback" not in refused.stderr
