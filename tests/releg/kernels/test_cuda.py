"""What only a GPU can show: bash tests/run.sh -m cuda. Skipped where there is none."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import read_estimator
from releg.estimators.base import Estimate, Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.kernels import cpu, triton
from releg.kernels.dense import flip_differences
from releg.sbn import SigmoidBeliefNet, Trajectory
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, TINY, releg, releg_command
from tests.lightning_modules.run_states import wait_for_new_checkpoint
from tests.releg.estimators.cases import CASES
from tests.releg.helpers import error, random_model, random_x, simulate

pytestmark = pytest.mark.cuda
ON_CUDA = ("--trainer.accelerator", "cuda", "--trainer.devices", "1")


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 50.0])
@pytest.mark.parametrize("layers", [[5], [257, 3], [1, 1, 1], [40, 30, 50], [64, 32, 16, 8], [1000, 1000]])
def test_triton_equals_the_reference(layers: list[int], scale: float) -> None:
    model = random_model(20, layers, scale, len(layers)).cuda()
    path, r = simulate(model, 3, 1)
    assert error(triton.flip_differences(model, path, r), flip_differences(model, path, r)) < 1e-9


@pytest.mark.parametrize("layers", [[200, 200], [256, 128, 64, 32], [200, 200, 200, 200]])
def test_a_batch_of_100_of_the_papers_nets_equals_the_cpu_engine(layers: list[int]) -> None:
    """In float64: in float32, of millions of thresholds some are within rounding."""
    torch.manual_seed(0)
    model = SigmoidBeliefNet(784, layers).double()
    path, r = simulate(model, 100, 1)
    expected = cpu.flip_differences(model, path, r)
    model.cuda()
    path, r = simulate(model, 100, 1)
    assert error(triton.flip_differences(model, path, r), expected) < 1e-9


def test_float32_is_as_exact_as_on_the_cpu() -> None:
    """Frozen noise, so that no unit changes: what is left are the log products."""
    torch.manual_seed(0)
    model = SigmoidBeliefNet(784, [200, 200])
    path, r = simulate(model, 100, 1)
    frozen = Trajectory(path.x, path.centred, [1 - z for z in path.z], path.logits, path.z)
    expected = cpu.flip_differences(model, frozen, r)
    model.cuda()
    lists = [[t.cuda() for t in tensors] for tensors in (frozen.noise, frozen.logits, frozen.z)]
    moved = Trajectory(frozen.x.cuda(), frozen.centred.cuda(), *lists)
    assert error(triton.flip_differences(model, moved, [logits.cuda() for logits in r]), expected) < 1e-4


def test_the_answer_is_the_same_bit_for_bit_when_asked_again() -> None:
    """The order in which flips are listed differs from call to call. What is computed of them must not."""
    torch.manual_seed(0)
    model = SigmoidBeliefNet(784, [200, 200, 200]).cuda()
    path, r = simulate(model, 100, 1)
    first = triton.flip_differences(model, path, r)
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, triton.flip_differences(model, path, r), strict=True))


def answer_on(device: str, name: str) -> tuple[Estimate, list[Tensor]]:
    """An estimate, and the gradient by the model's parameters; the noise is the same on every device."""
    model = random_model(12, [6, 5, 4], 0.7, 3)
    estimator = CASES[name].make()
    estimator.attach(model, torch.Generator().manual_seed(1))
    x = random_x(4, 12, 2)
    noise = estimator.draw_noise(model, x, torch.Generator().manual_seed(2))
    model.to(device)
    estimator.to(device)
    answer = estimator(model, x.to(device), [layer.to(device) for layer in noise])
    answer.surrogate.sum().backward()
    return answer, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("name", CASES)
def test_estimators_answer_as_on_the_cpu(name: str) -> None:
    (answer, gradients), (expected, expected_gradients) = answer_on("cuda", name), answer_on("cpu", name)
    assert error([answer.elbo, answer.surrogate], [expected.elbo, expected.surrogate]) < 1e-9
    assert error(gradients, expected_gradients) < 1e-9


@pytest.mark.parametrize("name", ["common_random_numbers", "likelihood_ratio"])
def test_a_training_step_never_waits_for_the_device(name: str) -> None:
    """The second and the third: the first one compiles the kernels, and copies a table of layers."""
    module = SBNModule([6, 5, 4], read_estimator(name), 12).cuda()
    optimizer = module.build_optimizer()
    x = random_x(4, 12, 2, torch.float32).cuda()
    try:
        for _ in range(3):
            loss, _ = module.loss_of(x, module.estimator.draw_noise(module.model, x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.cuda.set_sync_debug_mode("error")
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_on_another_gpu_than_the_current_one() -> None:
    model = random_model(20, [40, 30, 50], 1.0, 1).to("cuda:1")
    path, r = simulate(model, 3, 1)
    assert error(triton.flip_differences(model, path, r), flip_differences(model, path, r)) < 1e-9


@pytest.mark.parametrize("estimator", ["common_random_numbers", "likelihood_ratio"])
def test_a_short_fit_is_killed_and_continued(estimator: str, tmp_path: Path) -> None:
    command = ["fit", *TINY, "--config", f"estimator/{estimator}.yaml", *ON_CUDA, "--results_dir", str(tmp_path)]
    command += ["--trainer.max_steps", "1000"]
    folder = tmp_path / f"runs/6-12/{estimator}/seed0"
    process = subprocess.Popen(releg_command(*command), cwd=ROOT, env=ENVIRONMENT)
    wait_for_new_checkpoint(folder, process)
    process.kill()
    process.wait()
    assert not (folder / "result.json").exists()
    ended = releg(*command)
    assert ended.returncode == 0, ended.stderr
    assert "continuing" in ended.stderr
    assert (folder / "result.json").exists()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_train_together(tmp_path: Path) -> None:
    two = ("--trainer.accelerator", "cuda", "--trainer.devices", "2", "--trainer.strategy", "ddp")
    command = ["fit", *TINY, "--config", "estimator/common_random_numbers.yaml", *two, "--results_dir", str(tmp_path)]
    ended = releg(*command)
    assert ended.returncode == 0, ended.stderr


def test_releg_bench_measures_on_the_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "--device", "cuda", "--architectures", "200-200", "--rounds", "3", "--threads", "1"]
    ended = releg(*command, "--units", "50", "200", "--depths", "--output", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    rows = json.loads((tmp_path / "bench.json").read_text())["steps"]
    ways = {"floor", "eager", "compiled", "trainer"}
    assert {(row["estimator"], row["way"]) for row in rows} == {(name, way) for name in ("lr", "crn") for way in ways}
    assert all(row["ms"][0] > 0 for row in rows)
    page = (tmp_path / "bench.md").read_text()
    assert torch.cuda.get_device_name() in page
    with capsys.disabled():
        print(page)


@pytest.mark.parametrize("layers", [[200, 200], [256, 128, 64, 32]])
def test_time_of_a_step(layers: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    """Asserts nothing about the time: prints what the page about GPUs has a place for."""
    torch.manual_seed(0)
    model = SigmoidBeliefNet(784, layers).cuda()
    x = random_x(100, 784, 0, torch.float32).cuda()
    for name, estimator in {
        "LR": LikelihoodRatio(), "CRN, triton": CommonRandomNumbers(), "CRN, batched": CommonRandomNumbers("batched"),
        "CRN, dense": CommonRandomNumbers("dense"),
    }.items():  # fmt: skip
        times = [_milliseconds(model, estimator, x) for _ in range(23)][3:]
        said = f"{torch.cuda.get_device_name()}: {model}, batch 100, {name}: {sorted(times)[10]:.3f} ms"
        with capsys.disabled():
            print(said)
        assert min(times) > 0


def _milliseconds(model: SigmoidBeliefNet, estimator: Estimator, x: Tensor) -> float:
    """Of estimate and backward."""
    noise = model.draw_noise(x)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    estimator.estimate(model, x, noise).surrogate.sum().backward()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))
