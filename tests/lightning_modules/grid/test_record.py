"""Entries of runs.json. Their order, and which of them leave, is tested in test_grid.py and test_publish.py."""

from pathlib import Path

from lightning_modules.grid.options import budget_file
from lightning_modules.grid.plan import plan, status_of
from lightning_modules.grid.record import entry_of
from tests.lightning_modules.run_states import leave_finished


def test_an_entry_names_no_path_of_this_machine(tmp_path: Path) -> None:
    run = plan(budget_file("smoke"), 1, tmp_path)[0]
    leave_finished(status_of(run))
    entry = entry_of(status_of(run))
    assert entry.provenance[0]["commit"]
    assert str(tmp_path) not in f"{entry.config}{entry.provenance}"
