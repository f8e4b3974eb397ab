"""What is particular to the CPU engine: its ranges, its memory of sets, its threads, its cache on disk."""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numba
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.kernels import cpu
from releg.kernels import flip_differences as flip_differences_by
from releg.kernels.cpu import entry, layout
from releg.kernels.dense import flip_differences
from releg.sbn import SigmoidBeliefNet, Trajectory
from tests.releg.helpers import error, random_model, simulate

ROOT = Path(__file__).parents[3]
Workspaces = dict[layout.Shape, layout.Workspace]


@pytest.fixture
def workspaces(monkeypatch: pytest.MonkeyPatch) -> Workspaces:
    """Those that wait for the next call: none at first."""
    free: Workspaces = {}
    monkeypatch.setattr(cpu, "_free", free)
    return free


@pytest.mark.parametrize("layers", [[70, 20, 70, 33], [33, 65, 64, 31], [40, 97, 8, 100], [129, 5, 129]])
def test_sets_of_changed_units_may_span_any_number_of_blocks(layers: list[int]) -> None:
    for seed, scale in enumerate([0.1, 0.3, 1.0]):
        model = random_model(20, layers, scale, seed)
        path, logits = simulate(model, 6, seed)
        assert error(cpu.flip_differences(model, path, logits), flip_differences(model, path, logits)) < 1e-9


@pytest.mark.parametrize("largest", [0.5, 3.0, 15.0, 31.0, 63.9, 64.1, 90.0, 400.0, 800.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_never_leave_the_range_of_their_numbers(dtype: torch.dtype, largest: float) -> None:
    """All weights are as large as that, so products overflow or vanish as soon as they are one factor too long."""
    model = random_model(41, [19, 17, 9], 1.0, 3, dtype)
    for linear in model.linears():
        linear.weight.data = largest * linear.weight.data.sign()
    path, logits = simulate(model, 4, 3)
    answer = cpu.flip_differences(model, path, logits)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    assert error(answer, flip_differences(model, path, logits)) < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steep_weights_among_gentle_ones_are_exact(dtype: torch.dtype) -> None:
    """Some units have none, some one, some several, of both signs and of every size."""
    model = random_model(41, [37, 33, 18], 0.3, 5, dtype)
    generator = torch.Generator().manual_seed(5)
    for linear in model.linears():
        for size in (6.1, 9.0, 30.0, 79.0, 81.0, 300.0):
            chosen = torch.rand(linear.weight.shape, generator=generator) < 0.01
            linear.weight.data[chosen] = size * linear.weight.data[chosen].sign()
    path, logits = simulate(model, 20, 5)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    assert error(cpu.flip_differences(model, path, logits), flip_differences(model, path, logits)) < tolerance


def test_noise_of_0_and_1_is_never_crossed() -> None:
    """exp(-100 n) is 0 in float32 but not in float64, where the reference keeps every unit at its value."""
    model = random_model(9, [7, 6, 5], 1.0, 3)
    for linear in model.linears():
        linear.weight.data = 100 * linear.weight.data.sign()
    path, _ = simulate(model, 4, 3)
    frozen = replace(path, noise=[1 - z for z in path.z])
    expected = flip_differences(model, frozen, [])
    model.float()
    single = Trajectory(
        path.x.float(),
        path.centred.float(),
        *([t.float() for t in part] for part in (frozen.noise, path.logits, path.z)),
    )
    answer = cpu.flip_differences(model, single, model.generative_logits(single.z))
    assert error([a.double() for a in answer], expected) < 1e-5


def test_sets_of_the_same_hash_are_told_apart(workspaces: Workspaces) -> None:
    """Without the multiplier, sets that differ in their 65th unit or a later one have the same hash."""
    model = random_model(20, [70, 150, 140, 40], 0.5, 1)
    path, logits = simulate(model, 8)
    expected = cpu.flip_differences(model, path, logits)
    (workspace,) = workspaces.values()
    workspace.call["multiplier"] = 0
    assert error(cpu.flip_differences(model, path, logits), expected) == 0
    assert list(workspaces.values()) == [workspace]


def test_strided_inputs_are_read_as_what_they_are() -> None:
    model = random_model(12, [6, 5, 4], 1.0, 2)
    path, logits = simulate(model, 9)
    expected = cpu.flip_differences(model, path, logits)

    def strided(tensor: Tensor) -> Tensor:
        return torch.stack([tensor, tensor.flip(0)], dim=-1)[..., 0]

    for linear in model.linears():
        linear.weight.data = linear.weight.data.T.contiguous().T
    layers = ([strided(t) for t in part] for part in (path.noise, path.logits, path.z))
    scattered = Trajectory(strided(path.x), strided(path.centred), *layers)
    assert not scattered.z[0].is_contiguous()
    assert error(cpu.flip_differences(model, scattered, [strided(r) for r in logits]), expected) < 1e-12


def test_the_default_device_plays_no_part() -> None:
    """A tensor made without saying where would be on `meta` here, and have no memory for the kernel to write to."""
    model = random_model(7, [5, 4])
    path, logits = simulate(model, 3)
    expected = cpu.flip_differences(model, path, logits)
    with torch.device("meta"):
        answer = cpu.flip_differences(model, path, logits)
    assert all(torch.equal(a, b) for a, b in zip(answer, expected, strict=True))


def test_threads_never_share_a_workspace() -> None:
    models = [random_model(30, [20, 15, 10], 0.5, seed) for seed in range(4)]
    cases = [(model, *simulate(model, 50)) for model in models]
    expected = [cpu.flip_differences(*case) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda case: cpu.flip_differences(*case), cases * 5)
        for answer, right in zip(answers, expected * 5, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(answer, right, strict=True))


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_the_answer_does_not_depend_on_how_many_rows_a_worker_has_in_hand(
    rows: int, monkeypatch: pytest.MonkeyPatch, workspaces: Workspaces
) -> None:
    model = random_model(30, [20, 15, 10], 0.5, 1, torch.float32)
    path, logits = simulate(model, 77)
    torch.set_num_threads(2)
    usual = cpu.flip_differences(model, path, logits)
    workspaces.clear()
    monkeypatch.setattr(layout, "ROWS_IN_HAND", rows)
    answer = cpu.flip_differences(model, path, logits)
    assert [shape.in_hand for shape in workspaces] == [rows]
    assert all(torch.equal(a, b) for a, b in zip(answer, usual, strict=True))


def test_it_uses_torch_s_number_of_threads_at_every_call(workspaces: Workspaces) -> None:
    model = random_model(12, [6, 5], 1.0, 2)
    path, logits = simulate(model, 9)
    for threads in (3, 1, 2):  # the fixture that sets torch's number back is in conftest
        torch.set_num_threads(threads)
        cpu.flip_differences(model, path, logits)
    assert [shape.workers for shape in workspaces] == [3, 1, 2]


def test_only_the_workspaces_of_the_last_calls_are_kept(workspaces: Workspaces) -> None:
    model = random_model(12, [6, 5], 1.0, 2)
    for rows in range(1, 7):
        cpu.flip_differences(model, *simulate(model, rows))
    assert [shape.rows for shape in workspaces] == [3, 4, 5, 6]


def test_numbers_it_was_not_compiled_for_are_refused() -> None:
    model = random_model(4, [3], 1.0, 0, torch.bfloat16)
    path, logits = simulate(model, 2)
    with pytest.raises(ValueError, match=r"x is torch.bfloat16 on cpu, which engine 'cpu' cannot compute on"):
        flip_differences_by("cpu", model, path, logits)


@pytest.mark.parametrize("part", ["noise", "z", "logits"])
def test_a_path_of_mixed_types_is_refused(part: str) -> None:
    """The kernel reads all memory as numbers of one type: from others it would compute nonsense, or crash."""
    model = random_model(4, [3, 2], 1.0, 0, torch.float32)
    path, logits = simulate(model, 2)
    changes: dict[str, Any] = {part: [values.double() for values in getattr(path, part)]}
    mixed = replace(path, **changes)
    with pytest.raises(ValueError, match=r"got torch.float64 on cpu, expected torch.float32 on cpu like x"):
        cpu.flip_differences(model, mixed, logits)


FORKED = """
import os, signal, sys, torch
from tests.releg.kernels.test_cpu import cpu, random_model, simulate
model = random_model(60, [40, 30, 20], 0.5, 3, torch.float32)
path, logits = simulate(model, 100)
cpu._threads = lambda rows: 2
torch.set_num_threads(1)  # torch's own operations do not survive a fork otherwise
engine = cpu.flip_differences
expected = engine(model, path, logits)
child = os.fork()
if child == 0:
    signal.alarm(60)
    same = all(torch.equal(a, b) for a, b in zip(engine(model, path, logits), expected))
    os._exit(0 if same else 1)
_, status = os.waitpid(child, 0)
engine(model, path, logits)
sys.exit(os.waitstatus_to_exitcode(status) != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_child_forked_after_a_call_computes_the_same() -> None:
    assert run_python(FORKED).returncode == 0


@pytest.mark.parametrize("damage", [lambda code: b"", lambda code: bytes(len(code)), lambda code: code[:40]])
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_code_on_disk_is_compiled_again_and_said_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
    damage: Callable[[bytes], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    (tmp_path / "plain.py").write_text("def plain(address):\n    return None\n")

    plain = runpy.run_module("plain", run_name="plain")["plain"]
    assert entry._compiled(plain).cache_hits == 0
    (file,) = tmp_path.rglob(f"*.{ending}")
    file.write_bytes(damage(file.read_bytes()))
    assert [entry._compiled(plain).cache_hits for _ in range(3)] == [0, 0, 1]
    assert caplog.text.count("compiled code on disk cannot be used") == 1


def test_without_a_folder_to_write_to_code_is_compiled_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "FunctionCache", Mock(side_effect=RuntimeError))
    monkeypatch.setattr("numba.core.ccallback.FunctionCache", Mock(side_effect=RuntimeError("no locator available")))
    assert entry._compiled(lambda address: None).address


def test_a_view_that_negates_a_weight_is_read_as_what_it_stands_for() -> None:
    model = random_model(12, [6, 5, 4], 1.0, 2)
    path, logits = simulate(model, 9)
    expected = cpu.flip_differences(model, path, logits)
    for linear in model.linears():
        linear.weight = torch.nn.Parameter(torch._neg_view(-linear.weight.detach()), requires_grad=False)
        assert linear.weight.is_neg()
    assert error(cpu.flip_differences(model, path, logits), expected) == 0


def test_an_estimate_of_tensors_without_numbers_reads_none() -> None:
    with FakeTensorMode():
        model, x = SigmoidBeliefNet(12, [6, 5]), torch.zeros(7, 12)
        estimator = CommonRandomNumbers("cpu")
        estimate = estimator.estimate(model, x, estimator.draw_noise(model, x))
    assert [logits.shape for logits in estimate.logits] == [(7, 6), (7, 5)]


def test_torch_finds_nothing_wrong_in_the_operator() -> None:
    model = random_model(9, [5, 4], 1.0)
    path, r = simulate(model, 4, 1)
    weights = [[linear.weight.detach() for linear in linears] for linears in (model.generative, model.inference)]
    logits = [a.detach() for a in path.logits]
    torch.library.opcheck(cpu.cpu_flips, (path.x, path.z, path.noise, logits, r, *weights))


def run_python(program: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    return run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
