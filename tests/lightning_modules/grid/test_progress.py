"""What the user sees of the grid."""

import io
from pathlib import Path

import pytest

from lightning_modules.grid.estimate import Cost
from lightning_modules.grid.launchers.contract import Ended, Job
from lightning_modules.grid.plan import GridRun, RunStatus
from lightning_modules.grid.progress import GridProgress, duration
from lightning_modules.run.csv_files import MetricsCSV
from lightning_modules.run.result import write_result
from releg.records.names import ARCHITECTURES, ESTIMATORS
from tests.lightning_modules.run_states import RESULT


def waiting(tmp_path: Path, count: int, steps_done: int = 0) -> list[RunStatus]:
    names = [(architecture, estimator) for architecture in ARCHITECTURES for estimator in ESTIMATORS]
    config = {"trainer": {"max_steps": 100}}
    runs = [GridRun(architecture, estimator, 0, ()) for architecture, estimator in names[:count]]
    return [RunStatus(run, config, tmp_path / str(number), None, steps_done) for number, run in enumerate(runs)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_counts_predicted_work(tmp_path: Path) -> None:
    two, out = waiting(tmp_path, 2), Terminal()
    costs = {two[0].run: Cost(10.0, 0.1, 0.0, 100), two[1].run: Cost(10.0, 0.3, 0.0, 100)}
    progress = GridProgress(two, costs, out)
    two[0].folder.mkdir()
    write_result(two[0].folder, RESULT)
    progress.update([], [Ended(two[0], 40.0, "")])
    assert (
        "1 of 2: SBN(200-200) lr seed 0: negative test elbo 100.00 after 5 steps (best at 5), 0.7 min\n"
        in out.getvalue()
    )
    two[1].folder.mkdir()
    job = Job(two[1])
    assert job.progress() is None
    MetricsCSV(two[1].folder).log_metrics({"train/elbo": -130.0, "val/elbo": -140.0}, 50)
    progress.update([job], [])
    progress._bar.refresh()
    assert out.getvalue().rsplit("\r", 1)[-1].startswith(" 62% |"), "10 of 40 seconds, and half of the other 30"
    assert "SBN(200-200) crn seed 0: step 50 of 100, elbo -130.0" in out.getvalue()


def test_a_failed_run_is_told_at_once_and_remembered_also_without_a_terminal(tmp_path: Path) -> None:
    (one,) = waiting(tmp_path, 1)
    out = io.StringIO()
    progress = GridProgress([one], {}, out)
    progress.update([], [Ended(one, 1.0, "the disk is full")])
    assert out.getvalue() == "SBN(200-200) lr seed 0 failed: the disk is full\n"
    assert progress.problems == {one.run: "the disk is full"}


@pytest.mark.parametrize(
    ("seconds", "text"), [(40.2, "40 s"), (720.0, "12 min"), (12_600.0, "3.5 h"), (354_240.0, "4.1 days")]
)
def test_durations_are_round(seconds: float, text: str) -> None:
    assert duration(seconds) == text
