"""The published weights give the recorded bounds, and nothing else passes for them."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_modules import cli
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.grid import published_weights
from releg import bounds
from releg.sbn import SigmoidBeliefNet
from releg.weights import load, save_model
from tests.lightning_modules.run_states import RESULT, save_best

SAMPLES = 20


@pytest.fixture(scope="module")
def data() -> BinarizedMNIST:
    return BinarizedMNIST()


@pytest.fixture(scope="module")
def entry(data: BinarizedMNIST, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A finished run as runs.json describes it; its folder is absolute, so it serves any results folder."""
    folder = tmp_path_factory.mktemp("run")
    model = SigmoidBeliefNet(784, [4, 3], data.mean)
    model.reset_parameters(torch.Generator().manual_seed(3))
    save_best(folder, model)
    x = torch.from_numpy(data.images("test")).float()
    elbo = bounds.elbo(bounds.log_weights(model, x, SAMPLES, torch.Generator().manual_seed(8))).mean().item()
    return {
        "folder": str(folder),
        "estimator": "crn",
        "config": {"model.layers": [4, 3], "model.test_samples": SAMPLES, "seed_everything": 0},
        "result": RESULT | {"test/elbo": elbo, "val/elbo": elbo, "steps": 20, "best_step": 10},
        "provenance": [{"commit": "abc", "data_sha256": data.checksum}],
    }


@pytest.fixture(autouse=True)
def at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests publish the run with other results than its folder has."""
    monkeypatch.setattr(published_weights, "is_here", lambda *_: True)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "paper.json").write_text(json.dumps({"test_nll": {"200-200": {"crn": 98.28}}}))
    (tmp_path / "table1.json").write_text("[]")
    (tmp_path / "runs.json").write_text('{"runs": []}')
    return tmp_path


def tabulate(results: Path, *entries: dict[str, Any]) -> None:
    """A table of one cell with these runs."""
    results.mkdir(exist_ok=True)
    (results / "runs.json").write_text(json.dumps({"runs": entries}))
    bounds = [-entry["result"]["test/elbo"] for entry in entries]
    row = {"architecture": "3-4", "estimator": "crn", "test_nll_mean": statistics.fmean(bounds)}
    (results / "table1.json").write_text(json.dumps([row]))


def of_seed(entry: dict[str, Any], seed: int, worse: float) -> dict[str, Any]:
    """A run of another seed, with a lower bound."""
    result = entry["result"]
    lower = {name: result[name] - worse for name in ("test/elbo", "val/elbo")}
    return entry | {"config": entry["config"] | {"seed_everything": seed}, "result": result | lower}


def test_the_recorded_bound_is_found_again_from_the_file_alone(
    results: Path, entry: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = published_weights.publish(results, [entry])
    tabulate(results, entry)
    assert cell.path == results / "weights" / "3-4" / "crn.safetensors"
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 0
    shown = capsys.readouterr()
    assert f"| 3-4 | CRN | holds | 20 | 0 | {-entry['result']['test/elbo']:.2f} |" in shown.out
    assert "all 1 cells verified" in shown.err


def test_the_table_is_the_mean_of_the_seeds_and_the_file_is_one_of_them(
    results: Path, entry: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = [entry, of_seed(entry, 1, worse=1.0), of_seed(entry, 2, worse=2.0)]
    tabulate(results, *seeds)
    published_weights.publish(results, seeds)
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 0
    recorded = -entry["result"]["test/elbo"]
    row = capsys.readouterr().out.splitlines()[2]
    assert row.startswith(f"| 3-4 | CRN | holds | 20 | 0 | {recorded:.2f} |")
    assert f"| {recorded + 1:.2f} |" in row


def test_without_its_table_nothing_is_verified(
    results: Path, entry: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    published_weights.publish(results, [entry])
    (results / "table1.json").unlink()
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 2
    shown = capsys.readouterr()
    assert "table1.json cannot be read" in shown.err
    assert "verified" not in shown.err


def test_cells_that_were_trained_for_longer_are_verified_too(
    results: Path, entry: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    result = entry["result"] | {"test/elbo": entry["result"]["test/elbo"] + 0.5, "steps": 1_000_000}
    for folder, run in ((results, entry), (results / "converged", entry | {"result": result})):
        published_weights.publish(folder, [run])
        tabulate(folder, run)
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 1
    shown = capsys.readouterr()
    assert "| 3-4 | CRN | holds | 20 |" in shown.out
    assert "| 3-4 | CRN | differs | 1,000,000 |" in shown.out
    assert "SBN(3-4) crn, budget converged: the bound is" in shown.err


def changed_byte(entry: dict[str, Any], results: Path) -> None:
    (cell,) = published_weights.publish(results, [entry])
    content = bytearray(cell.path.read_bytes())
    content[-100] ^= 1
    cell.path.write_bytes(content)


def changed_bound(entry: dict[str, Any], results: Path) -> None:
    better = entry["result"] | {"test/elbo": entry["result"]["test/elbo"] + 0.5}
    published_weights.publish(results, [entry | {"result": better}])


def other_data(entry: dict[str, Any], results: Path) -> None:
    published_weights.publish(results, [entry | {"provenance": [{"commit": "abc", "data_sha256": "1234"}]}])


def no_file(entry: dict[str, Any], results: Path) -> None:
    tabulate(results, entry)
    published_weights.publish(results, [entry | {"estimator": "lr"}])


def another_table(entry: dict[str, Any], results: Path) -> None:
    published_weights.publish(results, [entry])
    tabulate(results, entry)
    (row,) = json.loads((results / "table1.json").read_text())
    (results / "table1.json").write_text(json.dumps([row | {"test_nll_mean": 98.0}]))


def table_of_another_run(entry: dict[str, Any], results: Path) -> None:
    """As close to the file's bound as two seeds may be."""
    published_weights.publish(results, [entry])
    tabulate(results, of_seed(entry, 1, worse=0.01), of_seed(entry, 2, worse=-0.01))


def no_description(entry: dict[str, Any], results: Path) -> None:
    (cell,) = published_weights.publish(results, [entry])
    save_model(cell.path, load(cell.path))


def another_cells_file(entry: dict[str, Any], results: Path) -> None:
    (cell,) = published_weights.publish(results, [entry])
    cell.path.rename(cell.path.with_name("lr.safetensors"))


@pytest.mark.parametrize(
    ("spoil", "estimator", "mark", "problem"),
    [
        (changed_byte, "crn", "damaged", "is damaged"),
        (changed_bound, "crn", "differs", "standard errors apart"),
        (other_data, "crn", "differs", "trained on data with SHA-256 1234, expected"),
        (no_file, "crn", "missing", "there is no file"),
        (another_table, "crn", "differs", "the table says 98.000, expected "),
        (table_of_another_run, "crn", "differs", "the file is of none of the runs in runs.json"),
        (no_description, "crn", "damaged", "does not say its estimator, test/elbo, "),
        (another_cells_file, "lr", "differs", "the file is of SBN(3-4) crn, expected what its name says"),
    ],
)
def test_what_does_not_hold_is_named_and_the_command_fails(
    spoil: Callable[[dict[str, Any], Path], None],
    estimator: str,
    mark: str,
    problem: str,
    results: Path,
    entry: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(entry, results)
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 1
    shown = capsys.readouterr()
    (sentence,) = (line for line in shown.err.splitlines() if f"SBN(3-4) {estimator}: " in line)
    assert problem in sentence
    assert f"| 3-4 | {estimator.upper()} | {mark} |" in shown.out


@pytest.mark.parametrize("spoil", [changed_byte, no_file])
def test_the_table_s_bound_is_shown_although_the_file_cannot_be_read(
    spoil: Callable[[dict[str, Any], Path], None],
    results: Path,
    entry: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(entry, results)
    tabulate(results, entry)
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 1
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| 3-4 | CRN |"))
    assert f"| {-entry['result']['test/elbo']:.2f} |" in row


@pytest.mark.parametrize("folder", ["", "converged"])
def test_weights_without_a_row_of_a_table_do_not_pass(
    folder: str, results: Path, entry: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = published_weights.publish(results / folder, [entry])
    tabulate(results / folder, entry)
    (results / folder / "table1.json").write_text("[]")
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 1
    assert f"{cell}: its cell is not in the table" in capsys.readouterr().err
    (results / folder / "table1.json").unlink()
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 2
    assert "table1.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("absent", ["config", "result", "provenance"])
def test_runs_that_lack_something_are_answered_in_one_sentence(
    absent: str, results: Path, entry: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    published_weights.publish(results, [entry])
    tabulate(results, entry)
    (results / "runs.json").write_text(json.dumps({"runs": [{k: v for k, v in entry.items() if k != absent}]}))
    assert cli.main(["verify", "--results", str(results), "--samples", "5"]) == 2
    assert f"runs.json cannot be read (KeyError: '{absent}'), expected the runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "there are no weights in"),
        (["--samples", "1"], "--samples: got '1', expected a whole number of at least 2"),
    ],
)
def test_a_mistake_ends_in_one_sentence(
    arguments: list[str], sentence: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", "--results", str(results), *arguments]) == 2
    assert sentence in capsys.readouterr().err
