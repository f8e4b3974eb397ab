"""releg variance at a checkpoint that releg fit has written."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from lightning_modules import cli
from lightning_modules.run.csv_files import read_variances

AMOUNTS = {"num_images": 3, "samples_per_image": 10, "baseline_steps": 2}
OPTIONS = [word for name, value in AMOUNTS.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run that measures its own variance at its last step, too."""
    torch.set_num_threads(1)
    results = tmp_path_factory.mktemp("results")
    measure = {"class_path": "lightning_modules.gradient_variance.GradientVariance", "init_args": AMOUNTS}
    config = {
        "model": {"layers": [5, 3]},
        "trainer": {"max_steps": 4, "limit_val_batches": 1, "limit_test_batches": 1, "callbacks+": [measure]},
        "results_dir": str(results),
    }
    (results / "tiny.yaml").write_text(yaml.safe_dump(config))
    files = ("base.yaml", "estimator/likelihood_ratio.yaml", str(results / "tiny.yaml"))
    configs = [word for file in files for word in ("--config", file)]
    assert cli.main(["fit", *configs, "--trainer.accelerator", "cpu"]) == 0
    return results / "runs" / "3-5" / "likelihood_ratio" / "seed0" / "last.ckpt"


def test_the_table_and_the_file_have_the_same_numbers(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["variance", "--ckpt", str(checkpoint), *OPTIONS]) == 0
    printed = capsys.readouterr().out
    rows = read_variances(checkpoint.with_name("grad_variance-last.csv"))
    assert {row["estimator"] for row in rows} == {"likelihood_ratio", "common_random_numbers"}
    assert {row["step"] for row in rows} == {"4"}
    for row in rows:
        assert f"{float(row['value']):.4g} ±" in printed
    assert "SBN(3-5) after 4 steps with LR" in printed
    assert "ratio to common_random_numbers" in printed
    assert "likelihood_ratio: the run's own, with what it learned." in printed


def test_the_runs_own_estimator_is_measured_as_the_callback_does(checkpoint: Path, tmp_path: Path) -> None:
    assert cli.main(["variance", "--ckpt", str(checkpoint), "--output", str(tmp_path / "own.csv"), *OPTIONS]) == 0
    theirs = [row for row in read_variances(tmp_path / "own.csv") if row["estimator"] == "likelihood_ratio"]
    by_callback = [row for row in read_variances(checkpoint.with_name("grad_variance.csv")) if row["step"] == "4"]
    for row, expected in zip(theirs, by_callback, strict=True):
        assert float(row["value"]) == pytest.approx(float(expected["value"]), rel=1e-6)


def test_baselines_of_estimators_from_files_are_trained(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "small_nets.yaml"
    baselines = [{"class_path": "releg.baselines.InputDependent", "init_args": {"hidden": 4}}]
    estimator = {
        "class_path": "releg.estimators.likelihood_ratio.LikelihoodRatio",
        "init_args": {"baselines": baselines},
    }
    config.write_text(yaml.safe_dump({"model": {"estimator": estimator}}))
    output = tmp_path / "table.csv"
    arguments = ["--ckpt", str(checkpoint), "--estimators", str(config), "--output", str(output), *OPTIONS]
    assert cli.main(["variance", *arguments]) == 0
    assert "small_nets: baselines trained for 2 mini-batches" in capsys.readouterr().out
    assert {row["estimator"] for row in read_variances(output)} == {"small_nets"}
    made_by = json.loads(output.with_suffix(".json").read_text())
    assert made_by.keys() >= {"checkpoint", "weights_sha256", "commit", "processor", "packages"}
