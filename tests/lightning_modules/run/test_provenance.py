"""provenance.json: one entry per process that worked on a run."""

import subprocess
from pathlib import Path

import pytest
import torch

from lightning_modules.run import provenance as provenance_module
from lightning_modules.run.provenance import PACKAGES, PROVENANCE, provenance, read_provenance, record_provenance
from tests.environment import ROOT


def test_an_entry_names_commit_versions_machine_and_threads() -> None:
    entry = provenance()
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert entry["commit"] == git.stdout.strip()
    assert set(entry["packages"]) == set(PACKAGES)
    assert entry["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert entry["torch_threads"] == torch.get_num_threads()
    assert entry["processor"]


def test_every_process_adds_its_entry(tmp_path: Path) -> None:
    for checksum in ("first", "second"):
        record_provenance(tmp_path, checksum, {})
    assert [entry["data_sha256"] for entry in read_provenance(tmp_path)] == ["first", "second"]


def test_another_number_of_threads_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = provenance()
    assert record_provenance(tmp_path, "data", {}) == ""
    assert record_provenance(tmp_path, "data", {}) == ""
    monkeypatch.setattr(provenance_module, "provenance", lambda: now | {"torch_threads": 77})
    assert record_provenance(tmp_path, "data", {}) == f"torch_threads 77, before {now['torch_threads']}"


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / PROVENANCE
    record_provenance(tmp_path, "first", {})
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match=r"provenance.json is damaged"):
        record_provenance(tmp_path, "second", {})


def test_reports_that_earlier_runs_wrote_are_no_uncommitted_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, report = tmp_path / "code.py", tmp_path / "results" / "table1.md"
    report.parent.mkdir()
    for file in (code, report):
        file.write_text("before")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(provenance_module, "ROOT", tmp_path)
    report.write_text("after")
    assert provenance()["uncommitted_changes"] is False
    code.write_text("after")
    assert provenance()["uncommitted_changes"] is True


def test_a_machine_without_git_trains_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    entry = provenance()
    assert (entry["commit"], entry["uncommitted_changes"]) == ("", False)
