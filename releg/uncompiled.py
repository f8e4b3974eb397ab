"""Marks functions that torch.compile runs as they are: it breaks its graph around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch._compile import _disable_dynamo

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """As torch.compiler.disable, which would load the compiler, for seconds, whenever releg is imported."""
    return cast("Function", _disable_dynamo(function))
