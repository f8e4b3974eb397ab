"""Code from a folder is not run by looking at it, nor by starting the program there."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_modules import cli
from lightning_modules.command_line.untrusted_configs import find_own_modules, read_yaml
from lightning_modules.run.load import load_run
from lightning_modules.sbn_module import SBNModule
from releg.checkpoint_file import DIGEST
from tests.lightning_modules.commands_helper import ENVIRONMENT, SHORT, TINY, folder_of

PLAIN = "releg.estimators.likelihood_ratio.LikelihoodRatio"
MODULE = """
from pathlib import Path
Path(__file__).with_name("code_was_run").touch()
from releg.estimators.likelihood_ratio import LikelihoodRatio
class Foreign(LikelihoodRatio):
    pass
"""
LOOKING = [["test"], ["validate"], ["variance"], ["compare", "--output", "compared"]]


@pytest.fixture
def folder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: a module, and a checkpoint."""
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    (tmp_path / "foreign.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # found if it is looked for
    yield tmp_path
    sys.modules.pop("foreign", None)


def rename(folder: Path, estimator: Any) -> None:
    """Let the config beside the checkpoint name another estimator."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["model"]["estimator"] = estimator
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


@pytest.mark.parametrize("command", LOOKING)
def test_a_config_beside_a_checkpoint_may_name_only_shipped_classes(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rename(folder, {"class_path": "foreign.Foreign"})
    assert cli.main([*command, "--ckpt", str(folder / "best.ckpt")]) == 2
    assert not (folder / "code_was_run").exists()
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"{folder / 'config.yaml'} names foreign.Foreign, expected only classes of releg, " in said
    assert said.endswith("add --trust")


@pytest.mark.parametrize(
    "estimator",
    [
        "foreign.Foreign",
        "hidden.yaml",
        "{class_path: foreign.Foreign}",
        {"class_path": PLAIN, "init_args": {"baselines": ["foreign.Foreign"]}},
    ],
)
def test_however_it_names_them(estimator: Any, folder: Path) -> None:
    (folder / "hidden.yaml").write_text("class_path: foreign.Foreign")
    rename(folder, estimator)
    for command in LOOKING[:3]:
        assert cli.main([*command, "--ckpt", str(folder / "best.ckpt")]) == 2
    assert not (folder / "code_was_run").exists()


def test_a_trusted_config_may_name_any_class(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["fit", *TINY, *SHORT, "--model.estimator", "foreign.Foreign", "--results_dir", "own"]
    assert cli.main(given) == 0  # on the command line, it is the user who names it
    own = folder_of(folder / "own", estimator="foreign") / "best.ckpt"
    assert cli.main(["test", "--ckpt", str(own)]) == 2
    assert cli.main(["test", "--ckpt", str(own), "--trust"]) == 0
    assert "test/elbo" in capsys.readouterr().out
    module, _, _ = load_run(own, trust=True)
    assert type(module.estimator).__name__ == "Foreign"
    with pytest.raises(ValueError, match=r"names foreign\.Foreign"):
        load_run(own)


@pytest.mark.parametrize("part", ["estimator", "_instantiator"])
def test_a_module_is_loaded_from_a_checkpoint_only_if_its_classes_are_shipped(part: str, folder: Path) -> None:
    assert type(SBNModule.load_from_checkpoint(folder / "best.ckpt").estimator).__name__ == "LikelihoodRatio"
    checkpoint = torch.load(folder / "best.ckpt", weights_only=True)
    checkpoint["hyper_parameters"][part] = "foreign.Foreign"
    del checkpoint[DIGEST]  # no secret: its author could as well write the one that fits
    torch.save(checkpoint, folder / "hostile.ckpt")
    with pytest.raises(ValueError, match=r"names foreign\.Foreign, expected"):
        SBNModule.load_from_checkpoint(folder / "hostile.ckpt")
    assert not (folder / "code_was_run").exists()


@pytest.mark.long
def test_a_file_of_the_current_folder_takes_no_packages_place(tmp_path: Path) -> None:
    installed = "torch numpy yaml numba llvmlite tensorboard tqdm torchmetrics jsonargparse typing_extensions json csv"
    # libraries try these, installed or not
    tried = "argcomplete cffi colorama coverage mpi4py pandas scipy tensorflow torch_xla"
    for name in [*installed.split(), *tried.split()]:
        (tmp_path / f"{name}.py").write_text(MODULE)
    given = [*TINY, *SHORT, "--model.estimator", "LikelihoodRatio", "--results_dir", "r"]
    command = [str(Path(sys.executable).with_name("releg")), "fit", *given]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert not (tmp_path / "code_was_run").exists()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "is_named"),
    [
        (["fit", "--model.estimator", "foreign.Foreign"], True),
        (["fit", "--model.estimator={class_path: foreign.Foreign}"], True),
        (["fit", "--config", "mine.yaml"], True),
        (["test", "--ckpt", "best.ckpt", "--trust"], True),
        (["test", "--ckpt", "best.ckpt"], False),
        (["fit", "--foreign.layers", "[3]", "--model.optimizer", "torch.optim.Adam"], False),
        (["fit", "--config", "foreign.yaml", "--config=foreign.yaml"], False),  # a shipped config's name may be this
        (["variance", "--ckpt", "none.ckpt", "--output", "foreign.csv"], False),
        (["fit", "--config", "remark.yaml"], False),
        (["fit", "--data.data_dir", "foreign.v2"], False),
        (["test", "--config", "names_files.yaml"], False),
        (["fit", "--model.estimator", "releg.foreign.Foreign"], False),
    ],
)
def test_modules_of_the_current_folder_are_found_only_if_the_user_names_one(
    words: list[str], is_named: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename(folder, {"class_path": "foreign.Foreign"})
    (folder / "mine.yaml").write_text("model: {estimator: {class_path: foreign.Foreign}}")
    (folder / "remark.yaml").write_text("model: {weight_decay: 0}  # instead of foreign.Foreign, as in: foreign.yaml")
    (folder / "names_files.yaml").write_text("{results_dir: foreign.results, data: {data_dir: foreign.v2}}")
    (folder / "torch").mkdir()
    (folder / "best.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(folder)])
    find_own_modules(words)
    assert (sys.path[-1] == str(folder)) == is_named


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    return "\n".join([*lines, *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8))])


@pytest.mark.parametrize("text", [bomb(), "a: &a [*a]", "[" * 100_000], ids=["wide", "within itself", "deep"])
def test_a_config_that_would_fill_the_memory_is_refused(
    text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.yaml").write_text(text)
    began = time.process_time()
    with pytest.raises(ValueError, match="expected a config"):
        read_yaml(folder / "config.yaml")
    assert time.process_time() - began < 1.0
    ckpt = ["--ckpt", str(folder / "best.ckpt")]
    for command in ("test", "variance"):
        assert cli.main([command, *ckpt]) == 2
        assert "is damaged, expected" in capsys.readouterr().err.splitlines()[-1]
