"""YAML files, whoever wrote them: read without running code, and refused if they would fill the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MOST_VALUES = 100_000  # with every alias written out; a config has some hundred
DEEPEST = 50  # lists and maps within each other


def read_yaml(path: Path) -> Any:
    """The content; ValueError if it is no YAML, or too large."""
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
            f"{path} is no YAML ({' '.join(str(error).split())}), expected a config; correct it"
        ) from error


def _check_depth(text: str, path: Path) -> None:
    """Before the file is read recursively, which ends the process if it is deep enough."""
    depth = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"{path} has more than {DEEPEST} lists within each other, expected a config; correct it")


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node holds, an alias counting for all that it stands for; many if it holds itself."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # until it is counted
        parts: list[Any] = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        known[id(node)] = 1 + sum(_values(each, known) for each in inner)
    return known[id(node)]
