"""Whose classes a config may name: anyone's if the user gave it, only shipped ones if it was beside a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jsonargparse import ArgumentError, _common, set_parsing_settings

TRUSTED_MODULES = ("releg", "lightning_modules", "torch.optim")
HELP = "Also use classes that are not shipped if the config beside the checkpoint names some: their code is run."


@contextmanager
def only_shipped_classes(config: Path) -> Iterator[None]:
    """While settings are read and built: a module of someone else is not imported, and ValueError names its class.

    Args:
        config: the file that may name some.
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
