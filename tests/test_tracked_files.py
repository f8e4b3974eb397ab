"""What git tracks: only the rooms of the project, and nothing large but the data set and the published weights."""

import subprocess

import pytest

from tests.environment import ROOT

TOP_LEVEL = {
    *(".ci", ".github", ".gitignore", ".pre-commit-config.yaml", "pyproject.toml", "reproduce.sh"),
    *("CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md"),
    *("data", "lightning_modules", "releg", "results", "tests"),
}
LARGE = 1_000_000  # bytes


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no clone")
    return listed.stdout.split("\0")[:-1]


def test_the_top_level_has_nothing_but_its_rooms(tracked: list[str]) -> None:
    assert {name.split("/")[0] for name in tracked} == TOP_LEVEL


def test_large_files_are_data_or_weights(tracked: list[str]) -> None:
    large = [name for name in tracked if (ROOT / name).is_file() and (ROOT / name).stat().st_size > LARGE]
    assert large
    assert [n for n in large if not n.startswith("data/MNIST/raw/") and not n.endswith(".safetensors")] == []
