"""Imports point one way: bernoulli <- sbn <- estimators/kernels <- lightning_modules. Read from the source, not run."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.environment import ROOT

Graph = dict[str, set[str]]  # module -> what it imports, anywhere in its file

LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric", "lightning_modules")


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(path: Path, module: str) -> Iterator[str]:
    """Every dotted name that a file imports: for `from a import b`, a.b, b being a module or not."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def import_graph(root: Path) -> Graph:
    """What each module of the project imports; its own modules by their names, others as written."""
    files = {
        module_name(path, root): path for top in ("releg", "lightning_modules") for path in (root / top).rglob("*.py")
    }

    def resolve(name: str) -> str:
        parent = name.rpartition(".")[0]
        return parent if name not in files and parent in files else name

    return {module: {resolve(name) for name in imported_names(path, module)} for module, path in files.items()}


def reachable(graph: Graph, start: str) -> set[str]:
    """Everything that a module imports, directly or through other modules of the project."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(graph.get(module, ()))
    return found


def concrete_estimators(graph: Graph) -> set[str]:
    shared = ("releg.estimators.base", "releg.estimators.parts")
    within = {module for module in graph if is_within(module, ("releg.estimators",)) and not is_within(module, shared)}
    return within - {"releg.estimators"}


# --- the rules: each answers with its violations, "importer -> imported"


def violations(graph: Graph, importers: tuple[str, ...], is_wrong: Callable[[str], bool]) -> list[str]:
    return sorted(
        f"{module} -> {name}"
        for module in graph
        if is_within(module, importers)
        for name in graph[module]
        if is_wrong(name)
    )


def releg_never_imports_lightning(graph: Graph) -> list[str]:
    return violations(graph, ("releg",), lambda name: is_within(name, LIGHTNING))


def the_project_never_imports_its_tests(graph: Graph) -> list[str]:
    return violations(graph, ("releg", "lightning_modules"), lambda name: is_within(name, ("tests",)))


def bernoulli_stands_alone(graph: Graph) -> list[str]:
    return violations(graph, ("releg.bernoulli",), lambda name: is_within(name, ("releg",)))


def the_model_knows_only_bernoulli(graph: Graph) -> list[str]:
    return violations(
        graph, ("releg.sbn",), lambda name: is_within(name, ("releg",)) and not is_within(name, ("releg.bernoulli",))
    )


def kernels_know_no_estimator(graph: Graph) -> list[str]:
    return violations(graph, ("releg.kernels",), lambda name: is_within(name, ("releg.estimators",)))


def estimators_never_import_each_other(graph: Graph) -> list[str]:
    """Not even through a third module, nor by way of the package."""
    concrete = concrete_estimators(graph)
    others = concrete | {"releg.estimators"}
    found = [(module, name) for module in concrete for name in reachable(graph, module) & others]
    direct = [("releg.estimators.base", name) for name in graph.get("releg.estimators.base", set()) & others]
    return sorted(f"{module} -> {name}" for module, name in [*found, *direct])


def reports_read_only_files(graph: Graph) -> list[str]:
    return violations(
        graph, ("releg.report",), lambda name: is_within(name, ("releg",)) and not is_within(name, ("releg.report",))
    )


def there_are_no_cycles(graph: Graph) -> list[str]:
    return sorted(f"{module} -> {module}" for module in graph if module in reachable(graph, module))


RULES = [
    releg_never_imports_lightning,
    the_project_never_imports_its_tests,
    bernoulli_stands_alone,
    the_model_knows_only_bernoulli,
    kernels_know_no_estimator,
    estimators_never_import_each_other,
    reports_read_only_files,
    there_are_no_cycles,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_imports_point_one_way(rule: Callable[[Graph], list[str]]) -> None:
    graph = import_graph(ROOT)
    assert {"releg.bernoulli", "releg.sbn"} <= set(graph)
    assert rule(graph) == []


# A project that keeps every rule.
SOUND = {
    "releg/__init__.py": "",
    "releg/bernoulli.py": "import torch",
    "releg/sbn.py": "from releg import bernoulli",
    "releg/bounds.py": "from releg.sbn import SigmoidBeliefNet",
    "releg/middleman.py": "from releg.estimators.old import Old",
    "releg/estimators/__init__.py": "",
    "releg/estimators/base.py": "from releg.sbn import SigmoidBeliefNet",
    "releg/estimators/old.py": "from releg.estimators.base import Estimate\nfrom releg.kernels import cpu",
    "releg/kernels/__init__.py": "",
    "releg/kernels/cpu.py": "import numba",
    "releg/report/table1.py": "import json\nfrom releg.report.style import Style",
    "releg/report/style.py": "",
    "lightning_modules/cli.py": "from releg.estimators.old import Old\nimport pytorch_lightning",
}

# One file that breaks each rule, and the line that says so.
BREACHES = [
    (releg_never_imports_lightning, "releg/new.py", "import pytorch_lightning as pl", "releg.new -> pytorch_lightning"),
    (
        releg_never_imports_lightning,
        "releg/deep/new.py",
        "def f():\n    from lightning_modules.cli import main",
        "releg.deep.new -> lightning_modules.cli",
    ),
    (the_project_never_imports_its_tests, "releg/new.py", "from tests import helpers", "releg.new -> tests.helpers"),
    (bernoulli_stands_alone, "releg/bernoulli.py", "from . import sbn", "releg.bernoulli -> releg.sbn"),
    (the_model_knows_only_bernoulli, "releg/sbn.py", "import releg.bounds", "releg.sbn -> releg.bounds"),
    (
        kernels_know_no_estimator,
        "releg/kernels/new.py",
        "from ..estimators.base import Estimate",
        "releg.kernels.new -> releg.estimators.base",
    ),
    (
        estimators_never_import_each_other,
        "releg/estimators/new.py",
        "from .old import Old",
        "releg.estimators.new -> releg.estimators.old",
    ),
    (
        estimators_never_import_each_other,
        "releg/estimators/new.py",
        "from releg.middleman import thing",
        "releg.estimators.new -> releg.estimators.old",
    ),
    (
        estimators_never_import_each_other,
        "releg/estimators/new.py",
        "from releg.estimators import Old",
        "releg.estimators.new -> releg.estimators",
    ),
    (reports_read_only_files, "releg/report/new.py", "from releg import sbn", "releg.report.new -> releg.sbn"),
    (there_are_no_cycles, "releg/bounds.py", "from releg import bounds", "releg.bounds -> releg.bounds"),
]


def write_files(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(("rule", "name", "source", "expected"), BREACHES)
def test_a_file_that_breaks_a_rule_is_found(
    rule: Callable[[Graph], list[str]], name: str, source: str, expected: str, tmp_path: Path
) -> None:
    write_files(tmp_path, SOUND)
    assert [found for each in RULES for found in each(import_graph(tmp_path))] == []
    write_files(tmp_path, {name: source})
    assert expected in rule(import_graph(tmp_path))
