"""runs.json of a grid: in the order of the table, whatever ended first."""

from pathlib import Path

from lightning_modules.grid.options import budget_file
from lightning_modules.grid.plan import GridRun, RunStatus, plan, status_of
from lightning_modules.grid.record import entry_of, merged, recorded, write_record
from tests.lightning_modules.run_states import leave_finished


def finish(run: GridRun) -> RunStatus:
    leave_finished(status_of(run))
    return status_of(run)


def test_entries_are_in_the_order_of_the_table_whatever_run_ended_first(tmp_path: Path) -> None:
    finished = [finish(run) for run in plan(budget_file("smoke"), 2, tmp_path)[4:12]]
    for count in (3, 7, 8):
        write_record(tmp_path, finished[-count:], {})
    assert [entry.folder for entry in recorded(tmp_path)] == [status.folder for status in finished]


def test_an_entry_names_no_path_of_this_machine(tmp_path: Path) -> None:
    entry = entry_of(finish(plan(budget_file("smoke"), 1, tmp_path)[0]))
    assert entry.provenance[0]["commit"]
    assert str(tmp_path) not in f"{entry.config}{entry.provenance}"


def test_a_new_entry_replaces_that_of_the_same_cell_and_seed(tmp_path: Path) -> None:
    old, other = [entry_of(finish(run)) for run in plan(budget_file("smoke"), 1, tmp_path / "old")[:2]]
    new = entry_of(finish(plan(budget_file("smoke"), 1, tmp_path / "new")[0]))
    assert merged([old, other], [new]) == [new, other]
