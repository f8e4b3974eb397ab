"""The published weights give the recorded bounds, and nothing else passes for them."""

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lightning_modules import cli
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.grid import weights
from releg import bounds
from releg.records.runs import Entry, write_runs
from releg.sbn import SigmoidBeliefNet
from releg.weights import load, load_weights, save_model
from tests.lightning_modules.run_states import RESULT, save_best

SAMPLES = 20


@pytest.fixture(scope="module")
def data() -> BinarizedMNIST:
    return BinarizedMNIST()


@pytest.fixture(scope="module")
def entry(data: BinarizedMNIST, tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """A finished run; its folder is absolute, so it serves any results folder."""
    folder = tmp_path_factory.mktemp("run")
    model = SigmoidBeliefNet(784, [4, 3], data.mean)
    model.reset_parameters(torch.Generator().manual_seed(3))
    save_best(folder, model)
    x = torch.from_numpy(data.images("test")).float()
    elbo = bounds.elbo(model, x, SAMPLES, torch.Generator().manual_seed(8)).mean().item()
    config = {"model.layers": [4, 3], "model.test_samples": SAMPLES, "seed_everything": 0, "trainer.max_steps": 20}
    result = RESULT | {"test/elbo": elbo, "val/elbo": elbo, "steps": 20, "best_step": 10}
    return Entry(folder, config, result, [{"commit": "abc", "data_sha256": data.checksum}], "crn")


def publish(results: Path, entries: list[Entry]) -> list[weights.Cell]:
    """The tests publish the run with other results than its folder has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Entry, "is_here", True)
        return weights.publish(results, entries)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "table1.json").write_text("[]")
    (tmp_path / "runs.json").write_text('{"runs": []}')
    return tmp_path


def tabulate(results: Path, *entries: Entry) -> None:
    """A table of one cell with these runs."""
    results.mkdir(exist_ok=True)
    write_runs(results, [replace(entry, folder=results / "run") for entry in entries], {})
    bounds = [-entry.result["test/elbo"] for entry in entries]
    row = {"architecture": "3-4", "estimator": "crn", "test_nll_mean": statistics.fmean(bounds)}
    (results / "table1.json").write_text(json.dumps([row]))


def with_result(entry: Entry, **changed: float) -> Entry:
    return replace(entry, result=entry.result | changed)


def of_seed(entry: Entry, seed: int, worse: float) -> Entry:
    """A run of another seed, with a lower bound."""
    lower = {name: entry.result[name] - worse for name in ("test/elbo", "val/elbo")}
    return replace(with_result(entry, **lower), config=entry.config | {"seed_everything": seed})


def test_the_recorded_bound_is_found_again_from_the_file_alone(
    results: Path, entry: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = publish(results, [entry])
    tabulate(results, entry)
    assert cell.path == results / "weights" / "3-4" / "crn.safetensors"
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 0
    shown = capsys.readouterr()
    assert f"| 3-4 | CRN | holds | 20 | 0 | {-entry.result['test/elbo']:.2f} |" in shown.out
    assert "all 1 cells verified" in shown.err


def test_the_table_is_the_mean_of_the_seeds_and_the_file_is_one_of_them(
    results: Path, entry: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = [entry, of_seed(entry, 1, worse=1.0), of_seed(entry, 2, worse=2.0)]
    tabulate(results, *seeds)
    publish(results, seeds)
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 0
    recorded = -entry.result["test/elbo"]
    row = capsys.readouterr().out.splitlines()[2]
    assert row.startswith(f"| 3-4 | CRN | holds | 20 | 0 | {recorded:.2f} |")
    assert f"| {recorded + 1:.2f} |" in row


def test_cells_that_were_trained_for_longer_are_verified_too(
    results: Path, entry: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = with_result(entry, **{"test/elbo": entry.result["test/elbo"] + 0.5, "steps": 1_000_000})
    for folder, run in ((results, entry), (results / "converged", longer)):
        publish(folder, [run])
        tabulate(folder, run)
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 1
    shown = capsys.readouterr()
    assert "| 3-4 | CRN | holds | 20 |" in shown.out
    assert "| 3-4 | CRN | fails | 1,000,000 |" in shown.out
    assert "SBN(3-4) crn, budget converged: the bound is" in shown.err


def changed_byte(entry: Entry, results: Path) -> None:
    (cell,) = publish(results, [entry])
    content = bytearray(cell.path.read_bytes())
    content[-100] ^= 1
    cell.path.write_bytes(content)


def changed_bound(entry: Entry, results: Path) -> None:
    publish(results, [with_result(entry, **{"test/elbo": entry.result["test/elbo"] + 0.5})])


def other_data(entry: Entry, results: Path) -> None:
    publish(results, [replace(entry, provenance=[{"commit": "abc", "data_sha256": "1234"}])])


def no_file(entry: Entry, results: Path) -> None:
    tabulate(results, entry)
    publish(results, [replace(entry, estimator="lr")])


def another_table(entry: Entry, results: Path) -> None:
    publish(results, [entry])
    tabulate(results, entry)
    (row,) = json.loads((results / "table1.json").read_text())
    (results / "table1.json").write_text(json.dumps([row | {"test_nll_mean": 98.0}]))


def table_of_another_run(entry: Entry, results: Path) -> None:
    """As close to the file's bound as two seeds may be."""
    publish(results, [entry])
    tabulate(results, of_seed(entry, 1, worse=0.01), of_seed(entry, 2, worse=-0.01))


def no_description(entry: Entry, results: Path) -> None:
    (cell,) = publish(results, [entry])
    save_model(cell.path, load(cell.path))


def codes_of_a_terminal(entry: Entry, results: Path) -> None:
    (cell,) = publish(results, [entry])
    save_model(cell.path, load(cell.path), {**load_weights(cell.path)[1], "estimator": "\x1b[31mcrn"})


def another_cells_file(entry: Entry, results: Path) -> None:
    (cell,) = publish(results, [entry])
    cell.path.rename(cell.path.with_name("lr.safetensors"))


@pytest.mark.parametrize(
    ("spoil", "estimator", "problem"),
    [
        (changed_byte, "crn", "is damaged"),
        (changed_bound, "crn", "standard errors apart"),
        (other_data, "crn", "trained on data with SHA-256 1234, expected"),
        (no_file, "crn", "No such file"),
        (another_table, "crn", "the table says 98.000, expected "),
        (table_of_another_run, "crn", "the file is of none of the runs in runs.json"),
        (no_description, "crn", "does not say its estimator, test/elbo, "),
        (codes_of_a_terminal, "crn", "the file is of SBN(3-4) \\x1b[31mcrn, expected what its name says"),
        (another_cells_file, "lr", "the file is of SBN(3-4) crn, expected what its name says"),
    ],
)
def test_what_does_not_hold_is_named_and_the_command_fails(
    spoil: Callable[[Entry, Path], None],
    estimator: str,
    problem: str,
    results: Path,
    entry: Entry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(entry, results)
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 1
    shown = capsys.readouterr()
    (sentence,) = (line for line in shown.err.splitlines() if f"SBN(3-4) {estimator}: " in line)
    assert problem in sentence
    assert f"| 3-4 | {estimator.upper()} | fails |" in shown.out


@pytest.mark.parametrize("folder", ["", "converged"])
def test_weights_without_a_row_of_a_table_do_not_pass(
    folder: str, results: Path, entry: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = publish(results / folder, [entry])
    tabulate(results / folder, entry)
    (results / folder / "table1.json").write_text("[]")
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 1
    assert f"{cell}: the table has no such cell" in capsys.readouterr().err
    (results / folder / "table1.json").unlink()
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 2
    assert "table1.json cannot be read" in capsys.readouterr().err


def test_runs_that_lack_something_are_answered_in_one_sentence(
    results: Path, entry: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(results, [entry])
    tabulate(results, entry)
    (results / "runs.json").write_text(json.dumps({"runs": [{**vars(entry), "folder": "run", "result": {}}]}))
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 2
    assert "runs.json cannot be read (KeyError: 'test/elbo'), expected what" in capsys.readouterr().err
