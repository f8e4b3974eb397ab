"""The triton engine without a GPU: interpreted, compiled for GPUs, checked by torch. Each rung catches a planted fault.

test_triton_fake.py goes on with fake CUDA tensors, test_cuda.py with real ones where there are any.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from releg.kernels import AutoEngine, engine_for
from releg.kernels.batched import BatchedEngine
from releg.kernels.triton import TritonEngine
from releg.kernels.triton.speed import Code, count
from tests.environment import ROOT
from tests.releg.helpers import random_model
from tests.releg.kernels.interpreted import CHECKS, FAULTS, simulate

pytestmark = pytest.mark.long  # interpreting and compiling take a minute together

SHARED_MEMORY = 48 * 1024  # bytes that every GPU gives a program without asking


def run(module: str, *arguments: str, package: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A module of tests in its own process, with the releg in the folder `package`."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    if module.endswith("interpreted"):
        environment["TRITON_INTERPRET"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join([str(package), str(ROOT)])
    command = [sys.executable, "-m", f"tests.releg.kernels.{module}", *arguments]
    return subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def interpreted() -> dict[str, tuple[float, float]]:
    ended = run("interpreted")
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, tuple[float, float]] = json.loads(ended.stdout)
    return answer


@pytest.mark.parametrize("name", CHECKS)
def test_interpreted_kernels_answer_the_numbers_of_the_reference(
    name: str, interpreted: dict[str, tuple[float, float]]
) -> None:
    error, allowed = interpreted[name]
    assert error <= allowed


@pytest.mark.parametrize("name", FAULTS)
def test_the_interpreter_notices(name: str, interpreted: dict[str, tuple[float, float]]) -> None:
    error, allowed = interpreted[name]
    assert not error <= allowed  # nan is an error, too


def test_opcheck_notices_a_fake_kernel_with_another_shape(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "releg", tmp_path / "releg", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "releg/kernels/triton/ops.py"
    right = "weight: Tensor, sign: Tensor) -> Tensor:\n    return torch.empty_like(sign,"
    assert source.read_text().count(right) == 1
    source.write_text(source.read_text().replace(right, right.replace("(sign,", "(logits,")))
    ended = run("interpreted", "opcheck", package=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["opcheck"][0] > 0


def complaints(needs: dict[str, dict[str, int]]) -> list[str]:
    """Which kernels spill registers, or need more than every GPU has."""
    return [
        f"{kernel} needs {need}"
        for kernel, need in needs.items()
        if need["stack"]
        or need["local"]
        or need["registers"] > 255
        or need["shared"] > SHARED_MEMORY
        or not need["cubin"]
    ]


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    ended = run("compiled")
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def test_kernels_compile_for_three_generations_of_gpus_without_spilling_registers(compiled: dict[str, Any]) -> None:
    assert {name.split()[0] for name in compiled["needs"]} == {"sm_80", "sm_90", "sm_100"}
    assert complaints(compiled["needs"]) == []


def test_spilled_registers_and_wrong_types_are_noticed(compiled: dict[str, Any]) -> None:
    assert len(complaints({"a layer of 1024 units in one warp": compiled["spilling"]})) == 1
    assert "next_layer" in compiled["not compiling"]


def test_the_predicted_speed_is_that_of_the_compiled_kernels(compiled: dict[str, Any]) -> None:
    assert (ROOT / "results/cuda_model.md").read_text() == compiled["page"] + "\n"


def test_instructions_are_counted_on_the_shortest_way_through_a_loop() -> None:
    """Two before the loop, one after it; inside, four if the branch is taken and six if not."""
    code = ["A", "A", ".L_x_0:", "A", "@P0 BRA `(.L_x_1)", "A", "A", ".L_x_1:", "A", "BRA `(.L_x_0)", "EXIT"]
    assert count(code) == Code(outside=3, rounds=(4,))


def test_cpu_tensors_are_refused_outside_the_interpreter() -> None:
    model = random_model(5, [4, 3])
    with pytest.raises(ValueError, match="expected a CUDA device; use engine='auto', or, for tests on a CPU, start"):
        TritonEngine()(model, *simulate(model, 2, 1))


def test_auto_takes_triton_for_cuda_tensors_and_batched_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_for("auto", 256.0, None)
    assert isinstance(engine, AutoEngine)
    with FakeTensorMode():
        for dtype, expected in [
            (torch.float32, TritonEngine),
            (torch.float64, TritonEngine),
            (torch.half, BatchedEngine),
        ]:
            assert isinstance(engine.choose(torch.zeros(1, dtype=dtype, device="cuda")), expected)
        monkeypatch.setattr("releg.kernels.has_triton", lambda: False)
        assert isinstance(engine.choose(torch.zeros(1, device="cuda")), BatchedEngine)
        with pytest.raises(ImportError, match="engine 'triton' needs triton, which is not installed"):
            engine_for("triton", 256.0, None)
