"""What the pages say can be done."""

import os
import re
from pathlib import Path

import pytest

from tests.environment import ROOT
from tests.pages import PAGES, blocks, link_weights


def test_every_script_in_a_documented_command_exists_and_ci_runs_the_test_command() -> None:
    commands = [line for page in PAGES for block in blocks(page.read_text(), "bash") for line in block.splitlines()]
    scripts = [command.split()[1] for command in commands if command.startswith("bash ")]
    assert {"tests/run.sh", "reproduce.sh"} <= set(scripts)
    assert [script for script in scripts if not (ROOT / script).is_file()] == []
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-2:] == ['bash "$run"', 'bash "$run" --long']
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_workflow_and_the_hooks_are_the_test_command_s() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.*)", workflow) == [".ci/run"]
    (revision,) = re.findall(r"rev: v(.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert f"ruff=={revision}\n" in (ROOT / "tests" / "constraints.txt").read_text()


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    link_weights(tmp_path)
    examples = [(page, block) for page in PAGES for block in blocks(page.read_text(), "python")]
    assert len(examples) >= 2
    for page, example in examples:
        exec(compile(example, str(page), "exec"), {})
