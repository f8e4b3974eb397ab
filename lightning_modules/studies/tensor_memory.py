"""Memory of tensors: every allocation of torch on the CPU, as its profiler sees it, also inside single functions."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def tensor_levels(function: Callable[[], object], mark: str = "") -> list[int]:
    """Bytes that tensors took above what was there before, after each allocation and release while the function ran.

    Args:
        function: what is measured; its result is released afterwards.
        mark: if there are `torch.profiler.record_function`s of this name, count from the first to the last of them.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        result = function()
    del result
    events = recorded.profiler.kineto_results.events()
    marks = [event.end_ns() for event in events if event.name() == mark]
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    level, levels = 0, [0]
    for time, change in changes:
        if not marks or min(marks) <= time <= max(marks):
            level += change
            levels.append(level)
    return levels
