"""Run the releg command, in this process or in one of its own, as a user does."""

import os
import subprocess
import sys
from pathlib import Path

from lightning_modules import cli
from lightning_modules.run.settings import Settings

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",  # for layers this small, threads that wait for each other cost more than they do
}
TINY = [  # a run of seconds: small layers, few steps, the real data
    *("--config", "base.yaml", "--config", "budget/smoke.yaml"),
    *("--model.layers", "[12,6]", "--model.test_samples", "1"),
    *("--trainer.max_steps", "60", "--trainer.val_check_interval", "20", "--trainer.log_every_n_steps", "10"),
    *("--trainer.limit_val_batches", "2", "--trainer.limit_test_batches", "2"),
]
SHORT = ["--trainer.max_steps", "4", "--trainer.val_check_interval", "2", "--trainer.limit_test_batches", "1"]


def fit(results: Path, *arguments: str, estimator: str = "likelihood_ratio") -> list[str]:
    """The words after `releg` that train a tiny net."""
    return ["fit", *TINY, "--config", f"estimator/{estimator}.yaml", "--results_dir", str(results), *arguments]


def settings(*arguments: str) -> Settings:
    """What `releg fit` makes of its arguments."""
    return cli.RelegCLI("fit", list(arguments), only_parse=True).settings


def folder_of(results: Path, name: str = "seed0", estimator: str = "likelihood_ratio") -> Path:
    """Where that command trains."""
    return results / "runs" / "6-12" / estimator / name


def trained(results: Path, *arguments: str) -> Path:
    """The folder of such a run, which has finished in this process."""
    assert cli.main(fit(results, *arguments)) == 0
    return folder_of(results)


def releg_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lightning_modules.cli", *arguments]


def releg(*arguments: str, cwd: Path = ROOT, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        releg_command(*arguments),
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
