"""`import releg`: complete, typed, and no more than torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import releg
from tests.environment import ROOT
from tests.releg.estimators.cases import CASES

HEAVY = ("numba", "matplotlib", "pytorch_lightning", "lightning_fabric", "torchvision", "pyro", "ray", "triton")


def modules_after(statement: str) -> set[str]:
    """What a fresh process has loaded after a statement."""
    code = f"import sys; {statement}; import json; print(json.dumps([*sys.modules]))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(answer.stdout))


def test_import_loads_torch_but_neither_lightning_nor_numba_nor_matplotlib() -> None:
    loaded = modules_after("import releg")
    assert "torch" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_every_estimator_is_in_the_package_by_the_name_of_its_class() -> None:
    names = {type(case.make()).__name__ for case in CASES.values()}  # of all files: test_unbiased sees to that
    assert len(names) > 13
    assert [name for name in names if not hasattr(releg, name)] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(releg.__file__).parent / "py.typed").is_file()
    assert isinstance(releg.__version__, str)
