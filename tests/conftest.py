"""Options, fixtures and the order of all tests."""

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.reproduce_script import FIGURE1, Script, finish

# The same examples in every run, so that only a change can make a test fail; no deadline: a first call may compile.
settings.register_profile("releg", derandomize=True, deadline=None)
settings.load_profile("releg")

# A background job of a shell ignores Ctrl-C, one under nohup SIGHUP, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Files that keep a worker busy for half a minute or more, longest first
HEAVY = (
    *("test_compiled_step.py", "test_faults.py", "test_ray.py", "test_reproduce.py", "test_ddp.py", "test_bench.py"),
    *("test_cluster_page.py", "test_elbo.py", "test_unbiased.py", "test_figure1.py", "test_cli.py", "test_parts.py"),
    *("test_hostile_settings.py", "test_endings.py", "test_grid.py", "test_jax_steps.py", "test_cpu.py"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--faults",
        choices=("short", "full"),
        default="short",
        help="how many faults and hostile inputs to try: short (the default) or full, which takes ten minutes",
    )
    parser.addoption(
        "--part",
        choices=("short", "long"),
        help="only the tests without the mark `long`, or only those with it",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select one part or all; start heavy files first, so that all workers end together."""
    part = config.getoption("--part")
    wanted = {"short": False, "long": True}.get(part)
    left_out = [item for item in items if wanted not in (None, item.get_closest_marker("long") is not None)]
    config.hook.pytest_deselected(items=left_out)
    order = {name: place for place, name in enumerate(HEAVY)}
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(scope="session")
def is_full(request: pytest.FixtureRequest) -> bool:
    """Whether to run the long schedule of faults."""
    return bool(request.config.getoption("--faults") == "full")


@pytest.fixture(scope="session")
def examples(is_full: bool) -> int:
    """The number of hostile inputs of each kind."""
    return 300 if is_full else 12


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"))


@pytest.fixture(scope="session")
def undisturbed(script: Script, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Results and output of both runs of SBN(32-64-128-256); the first worker that needs them makes them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "undisturbed"
    folder.mkdir(exist_ok=True)
    results, printed = folder / "results", folder / "printed.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            code, out, err = finish(script.tiny(results, *FIGURE1))
            assert code == 0, err
            printed.write_text(json.dumps([out, err]))
    out, err = json.loads(printed.read_text())
    return results, out, err


@pytest.fixture(autouse=True)
def one_thread_for_tiny_tensors() -> Iterator[None]:
    """For tiny models, threads cost more than the arithmetic."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
