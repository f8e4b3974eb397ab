"""Configs that someone else may have written: read without running code, and refused if they would fill the memory.

A config that the user passes may name any class; one that is found beside a checkpoint may name only shipped classes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, _common, set_parsing_settings

TRUSTED_MODULES = ("releg", "lightning_modules", "torch.optim")
TRUST_HELP = "Also use classes that are not shipped if the config beside the checkpoint names some: their code is run."
DEEPEST = 50  # nested lists and maps; reading them recursively could end the process


def read_yaml(path: Path) -> Any:
    """The content; ValueError if it is not YAML, or has aliases, a few of which are enough to fill the memory."""
    try:
        text = path.read_text()
        depth = 0
        for event in yaml.parse(text, yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
                raise ValueError(
                    f"{path} has aliases or more than {DEEPEST} lists within each other, expected a config without; "
                    "write it out"
                )
        return yaml.load(text, yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not YAML ({' '.join(str(error).split())}), expected a config; correct it"
        ) from error


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


def find_own_modules(words: list[str]) -> None:
    """Add the current folder to the end of the import path, but only if the user names a class that is in it.

    Libraries try to import packages that may not be installed. If the folder were always searched, a file of such a
    name would be run even by a command that only reads a checkpoint. The user names classes on the command line, in the
    configs given there and, with --trust, in the config beside a checkpoint.
    """
    files = [*words, *(os.path.join(os.path.dirname(word), "config.yaml") for word in words if "--trust" in words)]
    configs = [Path(file) for file in files if file.endswith((".yaml", ".yml")) and os.path.isfile(file)]
    texts = [*words, *(re.sub("#.*", "", config.read_text(errors="replace")) for config in configs)]
    for module in re.findall(r"(?<![\w./-])([A-Za-z_]\w*(?:\.\w+)*)\.[A-Z]", "\n".join(texts)):  # of module.Class
        path = os.path.abspath(module.replace(".", "/"))
        if os.path.isfile(f"{path}.py") or os.path.isfile(f"{path}/__init__.py"):
            sys.path.append(os.getcwd())
