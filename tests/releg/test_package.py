"""`import releg`: complete, typed, and no more than torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import import_module
from inspect import isabstract
from pathlib import Path

import releg
from releg.estimators.base import Estimator
from tests.environment import ROOT

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


def test_every_name_that_is_promised_is_there() -> None:
    assert sorted(releg.__all__) == releg.__all__
    for name in releg.__all__:
        assert getattr(releg, name) is not None


def test_every_estimator_is_promised() -> None:
    classes = {}
    for path in (ROOT / "releg" / "estimators").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and path.stem not in ("base", "__init__"):
                classes[node.name] = path.stem
    estimators = {
        name: file
        for name, file in classes.items()
        if issubclass(getattr(import_module(f"releg.estimators.{file}"), name), Estimator)
    }
    assert len(estimators) > 13
    for name, file in estimators.items():
        assert name in releg.__all__, f"name releg/estimators/{file}.py after {name}"
        assert not isabstract(getattr(releg, name))


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(releg.__file__).parent / "py.typed").is_file()
    assert isinstance(releg.__version__, str)
