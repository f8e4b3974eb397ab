"""What holds for every test."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# The same examples in every run, so that a change and not chance decides; no deadline, as a first call may compile.
settings.register_profile("releg", derandomize=True, deadline=None)
settings.load_profile("releg")


@pytest.fixture(autouse=True)
def one_thread_for_tiny_tensors() -> Iterator[None]:
    """Starting threads, and waiting for them on a busy machine, costs more than the arithmetic of tiny models."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
