"""The triton engine without a GPU: interpreted, and checked by torch. Each rung catches a planted fault.

tests/without_gpu/test_compile.py compiles the kernels for GPUs. test_triton_fake.py goes on with fake CUDA
tensors, test_cuda.py with real ones where there are any.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import ROOT
from tests.releg.kernels.interpreted import CHECKS, FAULTS

pytestmark = pytest.mark.long  # interpreting takes most of a minute


def run(*names: str, package: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The checks of interpreted.py in their own process, with the releg in the folder `package`."""
    path = os.pathsep.join([str(package), str(ROOT)])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.releg.kernels.interpreted", *names]
    return subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def interpreted() -> dict[str, tuple[float, float]]:
    ended = run()
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, tuple[float, float]] = json.loads(ended.stdout)
    return answer


@pytest.mark.parametrize("name", CHECKS)
def test_interpreted_kernels_answer_the_numbers_of_the_reference(
    name: str, interpreted: dict[str, tuple[float, float]]
) -> None:
    error, allowed = interpreted[name]
    assert error <= allowed


def test_published_weights_are_among_them() -> None:
    assert "SBN(200-200), published weights" in CHECKS


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
    ended = run("opcheck", package=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["opcheck"][0] > 0
