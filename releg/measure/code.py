"""The code that measured numbers depend on: what an earlier command measured is used again only if it is the same."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable
from pathlib import Path

import releg
from releg.estimators.base import Estimator

PACKAGE = Path(releg.__file__).parent  # if this code changes, any number may change,
ONLY_SHOWN = {PACKAGE / "report", PACKAGE / "records"}  # except for the code that only shows and names them


def code_digest(estimators: Iterable[Estimator]) -> bytes:
    """A hash of the package's code and of the estimators' own, which users may have written."""
    theirs = {Path(source) for each in estimators if (source := inspect.getsourcefile(type(each)))}
    text = hashlib.sha256()
    for file in sorted({*PACKAGE.rglob("*.py"), *theirs}):
        if ONLY_SHOWN.isdisjoint(file.parents):
            text.update(file.read_bytes())
    return text.digest()
