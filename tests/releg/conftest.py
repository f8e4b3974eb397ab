from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread_for_tiny_tensors() -> Iterator[None]:
    """Starting threads costs more than the arithmetic of tiny models."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
