"""The triton engine without a GPU: interpreted, compiled for GPUs, checked by torch. Each rung catches a planted fault.

test_triton_fake.py goes on with fake CUDA tensors, test_cuda.py with real ones where there are any.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from releg.kernels import AutoEngine, engine_for
from releg.kernels.batched import BatchedEngine
from releg.kernels.triton import TritonEngine
from tests.environment import ROOT
from tests.releg.helpers import random_model
from tests.releg.kernels.interpreted import CHECKS, simulate

SHARED_MEMORY = 48 * 1024  # bytes that every GPU gives a program without asking


def run(module: str, *arguments: str, package: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A module of tests in its own process, with the releg in the folder `package`."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    if module.endswith("interpreted"):
        environment["TRITON_INTERPRET"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join([str(package), str(ROOT)])
    command = [sys.executable, "-m", f"tests.releg.kernels.{module}", *arguments]
    return subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)


def faulty_copy(folder: Path, file: str, right: str, wrong: str) -> Path:
    """A copy of the project's package with one planted fault."""
    shutil.copytree(ROOT / "releg", folder / "releg", ignore=shutil.ignore_patterns("__pycache__"))
    source = folder / "releg/kernels/triton" / file
    text = source.read_text()
    assert text.count(right) == 1, f"{right!r} stands {text.count(right)} times in {file}"
    source.write_text(text.replace(right, wrong))
    return folder


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


INTERPRETED_FAULTS = {
    "targets beyond the last one count": (
        "products.py", "stay + at_row, mask=in_row, other=1.0", "stay + at_row, mask=in_row, other=0.5", "depth 1",
    ),
    "products run on until they overflow": (
        "products.py", "if taken == fits:", "if taken == fits + 100:", "log products, float32, all weights 30",
    ),
    "a pair of changes is taken for a single one": (
        "changes.py", "tl.where(number == 1,", "tl.where(number <= 2,", "many sets",
    ),
    "changes of the layer above are forgotten": (
        "walk.py", "other=0.0) + before", "other=0.0) + 0 * before", "many sets",
    ),
    "the fake kernel has another shape": (
        "ops.py", "weight: Tensor, sign: Tensor) -> Tensor:\n    return torch.empty_like(sign,",
        "weight: Tensor, sign: Tensor) -> Tensor:\n    return torch.empty_like(logits,", "opcheck",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", INTERPRETED_FAULTS)
def test_the_interpreter_and_opcheck_notice(fault: str, tmp_path: Path) -> None:
    *edit, check = INTERPRETED_FAULTS[fault]
    ended = run("interpreted", check, package=faulty_copy(tmp_path, *edit))
    assert ended.returncode == 0, ended.stderr
    error, allowed = json.loads(ended.stdout)[check]
    assert not error <= allowed  # nan is an error, too


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


def test_kernels_compile_for_three_generations_of_gpus_without_spilling_registers() -> None:
    ended = run("compiled")
    assert ended.returncode == 0, ended.stderr
    needs = json.loads(ended.stdout)
    assert {name.split()[0] for name in needs} == {"sm_80", "sm_90", "sm_100"}
    assert complaints(needs) == []


def test_layers_that_do_not_fit_their_registers_are_noticed(tmp_path: Path) -> None:
    edit = ("ops.py", "block // (256 if itemsize == 4", "block // (1024 if itemsize == 4")
    ended = run("compiled", "sm_90 walk 1024", package=faulty_copy(tmp_path, *edit))
    assert ended.returncode == 0, ended.stderr
    assert len(complaints(json.loads(ended.stdout))) == 1


def test_what_only_the_interpreter_accepts_does_not_compile(tmp_path: Path) -> None:
    edit = ("walk.py", "next_layer += 3", "next_layer = None")
    ended = run("compiled", "sm_100 walk", package=faulty_copy(tmp_path, *edit))
    assert ended.returncode != 0
    assert "CompilationError" in ended.stderr


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
