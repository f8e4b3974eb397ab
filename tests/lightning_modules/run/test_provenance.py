"""provenance.json: one entry per process that worked on a run."""

import importlib
import linecache
import subprocess
import sys
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


def test_whatever_can_change_a_number_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own_module.py"
    monkeypatch.syspath_prepend(tmp_path)
    config = {"model": {"estimator": {"class_path": "own_module.Own"}}}

    def recorded() -> str:
        monkeypatch.delitem(sys.modules, "own_module", raising=False)
        linecache.clearcache()
        importlib.invalidate_caches()
        importlib.import_module("own_module")
        return record_provenance(tmp_path, "data", config)

    own.write_text("class Own: pass")
    assert [recorded(), recorded()] == ["", ""]
    now = provenance()
    packages = now["packages"] | {"numba": "9.9", "torch": "8.8"}
    changed = now | {"commit": "c0ffee", "torch_threads": 77, "packages": packages}
    monkeypatch.setattr(provenance_module, "provenance", lambda: dict(changed))
    own.write_text("class Own: changed = True")
    told = recorded()
    for part in ("commit c0ffee, before ", f"torch_threads 77, before {now['torch_threads']}", "numba 9.9, before "):
        assert part in told
    assert "torch 8.8, before " in told
    assert "own_module " in told
    assert "\n" not in told
    assert recorded() == ""


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
