"""An installed wheel, used from a folder that is no clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

from tests.environment import ROOT
from tests.pages import blocks, section

pytestmark = pytest.mark.long

TYPED = """
import torch
from torch import Tensor

import releg
from releg import functional


def f(x: Tensor, z: releg.discrete.Values) -> Tensor:
    return (z["a"] * x).sum(1)


weights = torch.zeros(2, requires_grad=True)
layer = releg.Layer("a", (), lambda x, z: x + weights, units=2)
model = releg.DiscreteModel([layer, releg.Continuous("c", ("a",), lambda x, z, noise: z["a"] + noise, 2)])
answer = releg.gradient(model, f, torch.rand(5, 2), estimator=functional.disarm)
(found,) = torch.autograd.grad(answer.surrogate.sum(), [weights])
value, surrogate = functional.leave_one_out(torch.zeros(4, 2), lambda z: z.sum(1), samples=3)
net: releg.SigmoidBeliefNet = releg.SigmoidBeliefNet(6, [4, 3])
bound: float = releg.bounds.elbo(net, torch.ones(2, 6)).mean().item()
estimate: releg.Estimate = releg.DisArm()(net, torch.ones(2, 6), releg.DisArm().draw_noise(net, torch.ones(2, 6)))
"""


class Installed:
    """A new virtual environment with the wheel; everything else comes from the environment of the tests."""

    def __init__(self, folder: Path) -> None:
        source, self.home = folder / "source", folder / "home"
        for part in ("releg", "lightning_modules"):
            shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(ROOT / part, source / part)
        self.home.mkdir()
        pip = [sys.executable, "-m", "pip"]
        run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)], folder)
        venv.create(folder / "venv", with_pip=False)
        self.python = folder / "venv" / "bin" / "python"
        run([*pip, "--python", str(self.python), "install", "--no-deps", *map(str, folder.glob("*.whl"))], folder)
        (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (site / "others.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in a folder of the user's."""
        return run([str(self.python.parent / words[0]), *words[1:]], self.home, check=False)


def run(words: list[str], folder: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # which may be the clone
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def test_the_lines_of_the_page_work_in_any_folder(installed: Installed) -> None:
    (lines,) = blocks(section("releg", "Install"), "python")
    assert len(lines.splitlines()) <= 8
    done = installed("python", "-c", f"{lines}\nprint(releg.__file__, releg.__version__)")
    assert done.returncode == 0, done.stderr
    file, version = done.stdout.split()[-2:]
    assert Path(file).is_relative_to(installed.python.parents[1])
    assert version != "unknown"


def test_published_weights_are_found_or_it_is_said_where_they_are(installed: Installed) -> None:
    call = "import releg; print(releg.load('200-200/crn').layers)"
    done = installed("python", "-c", call)
    assert "they are part of the repository: clone it and call load in its folder" in done.stderr
    (installed.home / "results").symlink_to(ROOT / "results")
    assert installed("python", "-c", call).stdout == "[200, 200]\n"
    (installed.home / "results").unlink()


def test_fit_looks_for_data_in_the_user_s_folder_and_names_the_option(installed: Installed) -> None:
    words = ["fit", *("--config", "estimator/disarm.yaml"), *("--model.layers", "[4]"), "--trainer.fast_dev_run=true"]
    done = installed("releg", *words)
    raw = installed.home / "data" / "MNIST" / "raw"
    assert done.returncode != 0
    assert f"releg: expected MNIST's archives in {raw}, got no " in done.stderr
    assert "name a folder by --data.data_dir" in done.stderr
    done = installed("releg", *words, "--data.data_dir", str(ROOT / "data"))
    assert done.returncode == 0, done.stderr
    assert not raw.exists()


def test_code_that_uses_it_passes_a_strict_type_checker(installed: Installed) -> None:
    file = installed.home / "typed.py"
    file.write_text(TYPED)
    assert installed("python", str(file)).returncode == 0
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed.python)]
    wrong = 'reveal_type(answer)\nreleg.gradient(model, f, "x")\n'
    file.with_name("mistake.py").write_text(f"{TYPED}\n{wrong}")
    done = run([*mypy, "typed.py", "mistake.py"], installed.home, check=False)
    assert 'Revealed type is "releg.discrete.estimate.Gradient"' in done.stdout, done.stdout + done.stderr
    errors = [line.split(":")[0] for line in done.stdout.splitlines() if ": error:" in line]
    assert errors == ["mistake.py"], done.stdout
