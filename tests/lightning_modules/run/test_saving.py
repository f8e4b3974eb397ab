"""When checkpoints are saved, and what a continued run knows of the best one; tests/faults has the interruptions."""

import shutil
from pathlib import Path

import pytorch_lightning as pl

from lightning_modules.run.checkpoints import SafeCheckpointIO
from lightning_modules.run.identity import Stamp
from lightning_modules.run.saving import BestCheckpoint, LastCheckpoint
from lightning_modules.sbn_module import SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers
from tests.lightning_modules.small_data import small


def train(folder: Path, steps: int, ckpt: Path | None = None) -> BestCheckpoint:
    best = BestCheckpoint()
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_steps=steps, val_check_interval=2, num_sanity_val_steps=0, logger=False,
        callbacks=[best, LastCheckpoint(), Stamp({}, {})], default_root_dir=folder, enable_model_summary=False,
        enable_progress_bar=False, plugins=[SafeCheckpointIO()], check_val_every_n_epoch=None,
    )  # fmt: skip
    trainer.fit(SBNModule([3], CommonRandomNumbers(), 12), datamodule=small(), ckpt_path=ckpt)
    return best


def test_the_best_score_moves_with_its_folder(tmp_path: Path) -> None:
    first = train(tmp_path / "a", 5)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["best.ckpt", "last.ckpt"]
    moved = Path(shutil.move(tmp_path / "a", tmp_path / "b"))
    known = train(moved, 5, moved / "last.ckpt")  # no step is left
    assert known.best_model_score == first.best_model_score
    assert known.best_model_path == str(moved / "best.ckpt")
