"""The kernels compiled for GPUs that are not here."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.environment import ROOT

pytestmark = pytest.mark.long  # compiling takes half a minute

SHARED_MEMORY = 48 * 1024  # bytes that every GPU gives a program without asking


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
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "tests.without_gpu.compiled"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def test_kernels_compile_for_three_generations_of_gpus_without_spilling_registers(compiled: dict[str, Any]) -> None:
    assert {name.split()[0] for name in compiled["needs"]} == {"sm_80", "sm_90", "sm_100"}
    assert complaints(compiled["needs"]) == []


def test_spilled_registers_and_wrong_types_are_noticed(compiled: dict[str, Any]) -> None:
    assert len(complaints({"a layer of 1024 units in one warp": compiled["spilling"]})) == 1
    assert "next_layer" in compiled["not compiling"]
