"""Estimators by name: shipped configs, and YAML files like them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from jsonargparse import ArgumentParser

from lightning_modules import CONFIGS
from releg import estimators
from releg.estimators.base import Estimator
from releg.records.names import snake_case

ESTIMATOR_CONFIGS = CONFIGS / "estimator"


def shipped_names() -> list[str]:
    """Names of the shipped estimator configs."""
    return sorted(path.stem for path in ESTIMATOR_CONFIGS.glob("*.yaml"))


def name_of(estimator: Estimator) -> str:
    """The name of its config: of a shipped estimator, its file's; of another, DoubleFlip -> double_flip.

    Configs that differ only in the settings of a class share the name of its file.
    """
    package, _, file = type(estimator).__module__.rpartition(".")
    return file if package == estimators.__name__ else snake_case(type(estimator).__name__)


def import_all() -> None:
    """Import every shipped estimator: the parser of settings finds classes by their short names once they are known."""
    for module in iter_modules(estimators.__path__, f"{estimators.__name__}."):
        import_module(module.name)


def read_estimator(name: str) -> Estimator:
    """Build an estimator from the name of a shipped config or a YAML file; ValueError if there is none."""
    file = Path(name) if Path(name).suffix in (".yaml", ".yml") else ESTIMATOR_CONFIGS / f"{name}.yaml"
    if not file.is_file():
        names = ", ".join(shipped_names())
        raise ValueError(f"there is no estimator {name}, expected one of {names} or a YAML file; name one of them")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Estimator, "model.estimator", required=True)
    built: Estimator = parser.instantiate_classes(parser.parse_path(file)).model.estimator
    return built
