"""What a run says and records when the world has changed between its parts."""

import json
import sys
from pathlib import Path

import pytest
import pytorch_lightning as pl

from lightning_modules import cli
from lightning_modules.run import provenance
from releg.files import write_json
from tests.lightning_modules.commands_helper import TINY

OWN = """
from releg.estimators.likelihood_ratio import LikelihoodRatio
class Own(LikelihoodRatio):
    pass
"""
STEPS = ["--trainer.max_steps", "30", "--trainer.val_check_interval", "10", "--trainer.log_every_n_steps", "5"]


class Killed(pl.Callback):
    """Ends training at a step, once."""

    at = 25

    def on_train_batch_start(self, trainer: pl.Trainer, *args: object) -> None:
        if trainer.global_step == self.at:
            Killed.at = -1
            raise KeyboardInterrupt


def fit(results: Path, *arguments: str) -> list[str]:
    config = results / "killed.yaml"
    config.write_text(f"trainer: {{callbacks+: [{{class_path: {Killed.__module__}.Killed}}]}}")
    given = ["--config", str(config), "--results_dir", str(results), *arguments]
    return ["fit", *TINY, *STEPS, "--model.estimator", "own_module.Own", *given]


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run with an estimator of the user's own, interrupted at step 25."""
    (tmp_path / "own_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Killed, "at", 25)
    sys.modules.pop("own_module", None)
    assert cli.main(fit(tmp_path)) == 130
    return tmp_path / "runs" / "6-12" / "own" / "seed0"


def test_a_changed_estimator_commit_or_version_is_told_in_one_line_and_recorded(
    interrupted: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    results = interrupted.parents[3]
    (results / "own_module.py").write_text(OWN + "\n# changed\n")
    before = provenance.provenance()
    now = before | {"commit": "c0ffee0000", "packages": before["packages"] | {"numba": "9.9", "torch": "8.8"}}
    monkeypatch.setattr(provenance, "provenance", lambda: dict(now))
    assert cli.main(fit(results)) == 0
    (line,) = (record.getMessage() for record in caplog.records if "resuming with" in record.getMessage())
    for part in ("commit c0ffee0", "numba 9.9, before ", "torch 8.8, before ", "own_module "):
        assert part in line
    first, second = json.loads((interrupted / "provenance.json").read_text())
    sources = [entry["own_sources"] for entry in (first, second)]
    assert [name for name in sources[0] if sources[0][name] != sources[1][name]] == ["own_module"]
    assert second["commit"] == "c0ffee0000"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_enter_no_json(number: float, tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"rows": [{"elbo": number, "step": 1}], "pair": (1.5, number)})
    assert json.loads((tmp_path / "a.json").read_text()) == {"rows": [{"elbo": None, "step": 1}], "pair": [1.5, None]}
