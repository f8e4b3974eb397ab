"""releg compare from the command line, on a tiny net."""

import json
from pathlib import Path

import pytest

from lightning_modules import cli
from lightning_modules.bench import variance_bias_cost
from lightning_modules.shipped_estimators import read_estimator, shipped_names
from releg.sbn import SigmoidBeliefNet
from releg.weights import save_model

AMOUNTS = ["--num-images", "3", "--samples-per-image", "4", "--baseline-steps", "2"]
FEW = ["common_random_numbers", "likelihood_ratio"]


@pytest.fixture(autouse=True)
def short_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variance_bias_cost, "ROUNDS", 2)


@pytest.mark.long
def test_all_shipped_estimators_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = tmp_path / "lr.safetensors"
    save_model(weights, SigmoidBeliefNet(784, [4, 3]), {"estimator": "lr", "best_step": "1500"})
    assert cli.main(["compare", "--ckpt", str(weights), *AMOUNTS, "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    (document,) = json.loads((tmp_path / "compare.json").read_text())
    rows = document["rows"]
    assert sorted(row["estimator"] for row in rows) == shipped_names()
    for row in rows:
        assert row["label"] == read_estimator(row["estimator"]).label
        assert row["within"]["value"] >= 0
        assert row["ms_per_step"] > 0
        assert row["evaluations"] >= 1
        assert len(row["layers"]) == 2
        assert f"| {row['label']}" in printed
    biased = [row["estimator"] for row in rows if not row["unbiased"]]
    assert "straight_through" in biased
    assert printed.count("(biased)") == len(biased)
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_published_weights_will_do_and_those_measured_before_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lr", "crn", "lr"):
        weights = tmp_path / f"{name}.safetensors"
        save_model(weights, SigmoidBeliefNet(784, [4, 3]), {"estimator": name, "best_step": "1500"})
        command = ["compare", "--ckpt", str(weights), "--estimators", *FEW, *AMOUNTS]
        assert cli.main([*command, "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    titles = [line for line in shown.out.splitlines() if line.startswith("## SBN")]
    assert titles[-2:] == ["## SBN(3-4) after 1,500 steps with CRN", "## SBN(3-4) after 1,500 steps with LR"]
    assert "3 training images with 4 estimates each" in shown.out
    page = (tmp_path / "compare.md").read_text()
    assert shown.out.endswith(page + "\n")  # the page alone: progress goes to standard error


def test_a_damaged_file_is_told_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "compare.json").write_text('[{"rows":')
    assert cli.main(["compare", "--ckpt", "none.safetensors", "--output", str(tmp_path)]) == 2
    assert f"{tmp_path / 'compare.json'} cannot be read" in capsys.readouterr().err
