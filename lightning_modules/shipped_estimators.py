"""Estimators by name: shipped configs, and YAML files like them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from jsonargparse import ArgumentParser

from lightning_modules import CONFIGS
from lightning_modules.command_line.error_sentences import one_sentence
from lightning_modules.command_line.untrusted_configs import read_yaml
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


def estimator_settings(name: str) -> Any:
    """class_path and init_args from an estimator's config; ValueError if it has none."""
    path = _file_of(name)
    if not path.is_file():
        names = ", ".join(shipped_names())
        raise ValueError(f"there is no estimator {name}, expected one of {names} or a YAML file; name one of them")
    content = read_yaml(path)
    try:
        return content["model"]["estimator"]
    except (KeyError, TypeError) as error:
        expected = "expected model: estimator: class_path: ..."
        raise ValueError(
            f"{path} does not describe an estimator, {expected}; compare {ESTIMATOR_CONFIGS}/*.yaml"
        ) from error


def _file_of(name: str) -> Path:
    return Path(name) if Path(name).suffix in (".yaml", ".yml") else ESTIMATOR_CONFIGS / f"{name}.yaml"


def read_estimator(name: str) -> Estimator:
    """Build an estimator from the name of a shipped config or a YAML file; ValueError says what is wrong with it."""
    settings = estimator_settings(name)
    wrong = f"{_file_of(name)} does not describe an estimator"
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--estimator", type=Estimator)
    try:
        built = parser.instantiate(parser.parse_object({"estimator": settings}))
    except Exception as error:  # jsonargparse raises what the classes raise, and its own
        reason = one_sentence(ValueError(str(error).strip().splitlines()[-1]))
        raise ValueError(f"{wrong}: {reason}; compare {ESTIMATOR_CONFIGS}/*.yaml") from error
    estimator = built.estimator
    if not isinstance(estimator, Estimator):
        raise ValueError(f"{wrong}, expected a class_path of one; compare {ESTIMATOR_CONFIGS}/*.yaml")
    return estimator
