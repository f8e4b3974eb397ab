"""Configs that someone else may have written: read without running code, and refused if they would fill the memory.

A config that the user passes may name any class; one that is found beside a checkpoint may name only shipped classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, _common, set_parsing_settings

TRUSTED_MODULES = ("releg", "lightning_modules", "torch.optim")
TRUST_HELP = "Also use classes that are not shipped if the config beside the checkpoint names some: their code is run."
MOST_VALUES = 100_000  # with every alias written out; a config has some hundred
DEEPEST = 50  # nested lists and maps


def read_yaml(path: Path) -> Any:
    """The content; ValueError if it is not YAML, or too large."""
    try:
        text = path.read_text()
        _check_depth(text, path)
        loader = yaml.CSafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _values(node, {}) > MOST_VALUES:
                raise ValueError(f"{path} has more than {MOST_VALUES:,} values, expected a config; use another file")
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not YAML ({' '.join(str(error).split())}), expected a config; correct it"
        ) from error


def _check_depth(text: str, path: Path) -> None:
    """ValueError if lists and maps are nested too deeply: reading them recursively could end the process."""
    depth = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"{path} has more than {DEEPEST} lists within each other, expected a config; correct it")


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node holds with its aliases written out; more than MOST_VALUES if it contains itself."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # until it is counted
        parts: list[Any] = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        known[id(node)] = 1 + sum(_values(each, known) for each in inner)
    return known[id(node)]


@contextmanager
def only_shipped_classes(config: Path) -> Iterator[None]:
    """While settings are read and built, import nothing but TRUSTED_MODULES; ValueError names any other class.

    Args:
        config: the file that the settings come from, for the message.
    """
    before = dict(_common.parsing_settings)  # there is no public way back
    set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=list(TRUSTED_MODULES))
    try:
        yield
    except (ArgumentError, ValueError) as error:
        denied = re.search(r"Importing '([^']+)' is not allowed", str(error))
        if denied is None:
            raise
        raise ValueError(
            f"{config} names {denied[1]}, expected only classes of {', '.join(TRUSTED_MODULES)}, since a class is "
            "code; if you trust who wrote it, add --trust"
        ) from error
    finally:
        _common.parsing_settings.update(before)
