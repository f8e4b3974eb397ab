"""What the tests of faults share."""

from pathlib import Path

import pytest

from tests.lightning_modules.commands_helper import SHORT, trained


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run that has finished, to be read and copied."""
    return trained(tmp_path_factory.mktemp("run"), *SHORT)
