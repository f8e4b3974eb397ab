"""How much memory a piece of torch code takes, measured while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class MemoryUse(TorchFunctionMode):
    """Adds up the bytes of all tensors that torch functions make inside `with MemoryUse() as use`.

    Views are left out. Freed memory is not subtracted, so the sum exceeds what is alive at any one time, unless a
    single function needs a lot of temporary memory. (Counting below autograd would see inside functions, but costs
    seconds of imports at its first use.)
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function and count the tensors that it made."""
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else (result,):
            if isinstance(made, Tensor) and not made._is_view():
                self.bytes += made.numel() * made.element_size()
        return result
