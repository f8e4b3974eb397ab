"""Imports point one way. Read from the source, not run.

bernoulli <- sbn <- kernels, estimators <- exact, measure <- lightning_modules, where data <- sbn_module
<- run <- bench, grid <- studies, commands <- cli. Reports read only files.
"""

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.environment import ROOT

Graph = dict[str, set[str]]  # module -> what it imports, anywhere in its file

LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric", "lightning_modules")
PLAIN = ("releg.architecture", "releg.checks", "releg.files")  # which know nothing of the project


def rooms(*names: str) -> tuple[str, ...]:
    return tuple(f"lightning_modules.{name}" for name in names)


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def module_name(path: Path) -> str:
    """Of a file by its path from the root."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, path: Path, modules: Collection[str]) -> set[str]:
    """What a file imports: modules of the project by their names, others as written."""
    package = path.parent.parts
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            found.update(f"{base}.{alias.name}" for alias in node.names)  # of a module or not
    parents = {name: name.rpartition(".")[0] for name in found}
    return {parents[name] if name not in modules and parents[name] in modules else name for name in found}


def import_graph() -> Graph:
    files = [path for top in ("releg", "lightning_modules") for path in (ROOT / top).rglob("*.py")]
    paths = {module_name(path.relative_to(ROOT)): path for path in files}
    return {name: imported(path.read_text(), path.relative_to(ROOT), paths) for name, path in paths.items()}


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


DATA_SETS = rooms(*(path.stem for path in (ROOT / "lightning_modules").glob("binarized_*.py")))
DATA = (*DATA_SETS, *rooms("binary_images", "data_parts"))
COMMANDS = rooms(*(f"command_line.{name}" for name in ("bench", "compare", "variance", "verify", "options")))
AROUND_RUNS = (*rooms("run", "bench", "grid", "studies"), *COMMANDS)
BEFORE_LOADING = rooms("command_line.parser", "grid.options", "grid.process", "run.lock", "run.parent")
PYRO = ("pyro", "releg.pyro")
HEAVY = ("torch", "torchvision", "numpy", "numba", "jsonargparse", *LIGHTNING[:3])


# --- the rules


@dataclass(frozen=True)
class Rule:
    """The importers may not import what is forbidden, the allowed part of it excepted."""

    importers: tuple[str, ...]
    forbidden: tuple[str, ...]
    allowed: tuple[str, ...] = ()

    def __call__(self, graph: Graph) -> list[str]:
        """The violations: importer -> imported."""
        return sorted(
            f"{module} -> {name}"
            for module in graph
            if is_within(module, self.importers)
            for name in graph[module]
            if is_within(name, self.forbidden) and not is_within(name, self.allowed)
        )


def estimators_never_import_each_other(graph: Graph) -> list[str]:
    """Not even through a third module, nor by way of the package; parts import no estimator either."""
    shared = ("releg.estimators.base", "releg.estimators.parts")
    family = {module for module in graph if is_within(module, ("releg.estimators",))}
    concrete = {module for module in family - {"releg.estimators"} if not is_within(module, shared)}
    others = concrete | {"releg.estimators"}
    found = [(module, name) for module in family - {"releg.estimators"} for name in reachable(graph, module) & others]
    return sorted(f"{module} -> {name}" for module, name in found)


def there_are_no_cycles(graph: Graph) -> list[str]:
    return sorted(f"{module} -> {module}" for module in graph if module in reachable(graph, module))


def mistakes_are_answered_before_anything_heavy_is_loaded(graph: Graph) -> list[str]:
    """Not even through a third module. Names that releg keeps are allowed, although its package loads torch."""
    starts = [module for module in BEFORE_LOADING if module in graph]
    return sorted(
        f"{start} -> {name}" for start in starts for name in reachable(graph, start) if is_within(name, HEAVY)
    )


def only_its_own_room_needs_pyro(graph: Graph) -> list[str]:
    others = [module for module in graph if is_within(module, ("releg",)) and not is_within(module, ("releg.pyro",))]
    return sorted(f"{module} -> {name}" for module in others for name in graph[module] if is_within(name, PYRO))


# Each rule, and files that break it: "file: its source -> the import that is found"
RULES: dict[str, tuple[Callable[[Graph], list[str]], list[str]]] = {
    "releg never imports Lightning": (
        Rule(("releg",), LIGHTNING),
        [
            "releg/new.py: import pytorch_lightning as pl -> pytorch_lightning",
            "releg/deep/new.py: def f(): from lightning_modules.cli import main -> lightning_modules.cli",
        ],
    ),
    "the project never imports its tests": (
        Rule(("releg", "lightning_modules"), ("tests",)),
        ["releg/new.py: from tests import helpers -> tests.helpers"],
    ),
    "bernoulli stands alone": (
        Rule(("releg.bernoulli", *PLAIN), ("releg",)),
        ["releg/bernoulli.py: from . import sbn -> releg.sbn"],
    ),
    "the model knows only bernoulli": (
        Rule(("releg.sbn",), ("releg",), ("releg.bernoulli", *PLAIN)),
        ["releg/sbn.py: import releg.bounds -> releg.bounds"],
    ),
    "kernels know no estimator": (
        Rule(("releg.kernels",), ("releg.estimators", "releg.exact", "releg.measure")),
        ["releg/kernels/new.py: from ..estimators.base import Estimate -> releg.estimators.base"],
    ),
    "estimators know no measurement": (
        Rule(("releg.estimators",), ("releg.exact", "releg.measure")),
        ["releg/estimators/new.py: import releg.measure.variance -> releg.measure.variance"],
    ),
    "estimators never import each other": (
        estimators_never_import_each_other,
        [
            "releg/estimators/new.py: from .arm import Arm -> releg.estimators.arm",
            "releg/estimators/new.py: import releg -> releg.estimators.arm",
            "releg/estimators/new.py: from releg.estimators import Arm -> releg.estimators",
            "releg/estimators/parts/new.py: from releg.estimators.arm import Arm -> releg.estimators.arm",
        ],
    ),
    "reports read only files": (
        Rule(("releg.report",), ("releg",), ("releg.report", "releg.records", *PLAIN)),
        ["releg/report/new.py: from releg import sbn -> releg.sbn"],
    ),
    "records stand alone": (
        Rule(("releg.records",), ("releg", "lightning_modules"), ("releg.records", *PLAIN)),
        ["releg/records/names.py: from releg.report import figure -> releg.report.figure"],
    ),
    "Algorithm 1 knows no belief net": (
        Rule(("releg.discrete",), ("releg.sbn", "releg.estimators")),
        ["releg/discrete/new.py: from releg import sbn -> releg.sbn"],
    ),
    "the loss for Pyro knows no belief net": (
        Rule(("releg.pyro",), ("releg.sbn", "releg.estimators")),
        ["releg/pyro/new.py: from releg.sbn import Trajectory -> releg.sbn"],
    ),
    "only its own room needs Pyro": (
        only_its_own_room_needs_pyro,
        [
            "releg/new.py: import pyro.infer -> pyro.infer",
            "releg/new.py: from releg.pyro import ELBO -> releg.pyro",
        ],
    ),
    "data know no run": (
        Rule(DATA, (*rooms("sbn_module", "training_step"), *AROUND_RUNS)),
        ["lightning_modules/data_parts/new.py: from ..run import life -> lightning_modules.run.life"],
    ),
    "what data sets share knows none of them": (
        Rule(rooms("data_parts", "binary_images"), DATA_SETS),
        ["lightning_modules/data_parts/new.py: from .. import binarized_mnist -> lightning_modules.binarized_mnist"],
    ),
    "training knows no concrete data set": (
        Rule(rooms("sbn_module", "gradient_variance", "grid"), DATA_SETS),
        ["lightning_modules/grid/new.py: from .. import binarized_mnist -> lightning_modules.binarized_mnist"],
    ),
    "the module is trained by others": (
        Rule(rooms("sbn_module"), AROUND_RUNS),
        ["lightning_modules/sbn_module.py: from .run import life -> lightning_modules.run.life"],
    ),
    "a run knows neither grid nor commands": (
        Rule(rooms("run"), (*rooms("bench", "grid", "studies"), *COMMANDS)),
        ["lightning_modules/run/new.py: from ..grid import plan -> lightning_modules.grid.plan"],
    ),
    "bench knows neither grid nor commands": (
        Rule(rooms("bench"), (*rooms("grid", "studies"), *COMMANDS)),
        ["lightning_modules/bench/new.py: from ..grid import plan -> lightning_modules.grid.plan"],
    ),
    "the grid knows neither bench nor commands": (
        Rule(rooms("grid"), (*rooms("bench", "studies"), *COMMANDS)),
        ["lightning_modules/grid/new.py: from ..bench import tables -> lightning_modules.bench.tables"],
    ),
    "mistakes are answered before anything heavy is loaded": (
        mistakes_are_answered_before_anything_heavy_is_loaded,
        [
            "lightning_modules/command_line/parser.py: import torch -> torch",
            "lightning_modules/grid/options.py: from lightning_modules.run import life -> pytorch_lightning",
        ],
    ),
    "a run does not know the command line": (
        Rule(rooms("run", "sbn_module", "gradient_variance"), rooms("cli")),
        ["lightning_modules/run/new.py: from lightning_modules import cli -> lightning_modules.cli"],
    ),
    "there are no cycles": (
        there_are_no_cycles,
        ["releg/bounds.py: from releg import bounds -> releg.bounds"],
    ),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return import_graph()


@pytest.mark.parametrize("name", RULES)
def test_imports_point_one_way(name: str, graph: Graph) -> None:
    assert {"releg.bernoulli", "releg.sbn", "lightning_modules.sbn_module", *BEFORE_LOADING} <= set(graph)
    rule, breaches = RULES[name]
    assert rule(graph) == []
    assert breaches, "a rule without an example of what it forbids"


@pytest.mark.parametrize(("name", "breach"), [(name, breach) for name in RULES for breach in RULES[name][1]])
def test_a_file_that_breaks_a_rule_is_found(name: str, breach: str, graph: Graph) -> None:
    file, breaking = breach.split(": ", 1)
    source, found = breaking.split(" -> ")
    module = module_name(Path(file))
    changed = {**graph, module: imported(source, Path(file), graph)}
    assert f"{module} -> {found}" in RULES[name][0](changed)


def test_a_test_file_is_in_the_room_of_what_it_tests() -> None:
    tests = ROOT / "tests"
    rooms = {
        path.parent.relative_to(tests) for top in ("releg", "lightning_modules") for path in (tests / top).rglob("*.py")
    }
    assert [str(room) for room in rooms if not (ROOT / room).is_dir()] == []
