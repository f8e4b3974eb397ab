"""Estimators by name: shipped configs, and YAML files like them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from lightning_modules import CONFIGS
from releg.estimators.base import Estimator

SHIPPED = CONFIGS / "estimator"


def shipped_names() -> list[str]:
    """Names of the shipped estimator configs."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def settings_of(name: str) -> Any:
    """class_path and init_args from an estimator's config; ValueError if it has none."""
    path = _file_of(name)
    if not path.is_file():
        names = ", ".join(shipped_names())
        raise ValueError(f"there is no estimator {name}, expected one of {names} or a YAML file; name one of them")
    try:
        return yaml.safe_load(path.read_text())["model"]["estimator"]
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError) as error:
        expected = "expected model: estimator: class_path: ..."
        raise ValueError(f"{path} does not describe an estimator, {expected}; compare {SHIPPED}/*.yaml") from error


def _file_of(name: str) -> Path:
    return Path(name) if Path(name).suffix in (".yaml", ".yml") else SHIPPED / f"{name}.yaml"


def read_estimator(name: str) -> Estimator:
    """Build an estimator from the name of a shipped config or a YAML file; ValueError says what is wrong with it."""
    settings = settings_of(name)
    wrong = f"{_file_of(name)} does not describe an estimator"
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--estimator", type=Estimator)
    try:
        built = parser.instantiate(parser.parse_object({"estimator": settings}))
    except Exception as error:  # jsonargparse raises what the classes raise, and its own
        reason = str(error).strip().splitlines()[-1].strip(" -")
        raise ValueError(f"{wrong}: {reason}; compare {SHIPPED}/*.yaml") from error
    estimator = built.estimator
    if not isinstance(estimator, Estimator):
        raise ValueError(f"{wrong}, expected a class_path of one; compare {SHIPPED}/*.yaml")
    return estimator
