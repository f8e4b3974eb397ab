"""provenance.json: one entry per process that worked on a run."""

import json
import subprocess
from pathlib import Path

import torch

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


def test_every_process_adds_its_entry_and_a_damaged_file_starts_anew(tmp_path: Path) -> None:
    for checksum in ("first", "second"):
        record_provenance(tmp_path, checksum, {})
    assert [entry["data_sha256"] for entry in read_provenance(tmp_path)] == ["first", "second"]
    whole = (tmp_path / PROVENANCE).read_text()
    (tmp_path / PROVENANCE).write_text(whole[:-20])
    assert read_provenance(tmp_path) == []
    record_provenance(tmp_path, "third", {})
    assert [entry["data_sha256"] for entry in json.loads((tmp_path / PROVENANCE).read_text())] == ["third"]
