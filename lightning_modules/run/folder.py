"""Where runs live: results/runs/<architecture>/<estimator>/seed<k>/; with another data set than MNIST, runs/<data>/...

A run is identified by its saved config, never by its folder's name: if the folder is taken by a run with other
settings, the next free name (seed0-2, seed0-3, ...) is used and nothing is overwritten.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from lightning_modules.command_line.untrusted_configs import read_yaml
from lightning_modules.run import lock
from lightning_modules.run.identity import differences, settings_of
from lightning_modules.run.settings import Config, Settings
from releg.architecture import architecture_name
from releg.files import remove_leftovers, write_atomically
from releg.records.file_names import CONFIG, RESULT
from releg.records.names import snake_case

SECONDS_FOR_RANK_0 = 60.0  # to choose the folder
SECONDS_BETWEEN_LOOKS = 0.05


def find_run_folder(settings: Settings) -> Path:
    """The folder that holds this run already, whatever its name, or the first free one."""
    config = settings.config
    wanted = settings_of(config)
    home = _home(settings.results_dir, config) / settings.estimator_name
    seed = f"seed{config['seed_everything']}"
    saved = [*home.parent.glob(f"*/{seed}/{CONFIG}"), *home.parent.glob(f"*/{seed}-*/{CONFIG}")]
    for path in sorted(saved, key=lambda path: (path.parent.parent != home, path)):
        try:
            if not differences(_saved_settings(path, path.stat().st_mtime_ns), wanted):
                return path.parent
        except ValueError:  # damaged
            if path.parent.parent == home:
                raise
    names = (seed if number == 1 else f"{seed}-{number}" for number in count(1))
    return next(home / name for name in names if not (home / name / CONFIG).is_file())


@contextmanager
def claimed_run_folder(settings: Settings) -> Iterator[Path]:
    """Choose the run's folder and write its config there under the folder's lock, which is held until the end.

    BlockingIOError if another process is working on this very run.
    """
    deadline = time.monotonic() + lock.SECONDS_TO_WAIT
    while True:
        folder = find_run_folder(settings)
        is_ours = (folder / CONFIG).is_file()
        with ExitStack() as held:
            try:
                held.enter_context(lock.locked_run(folder, lock.SECONDS_TO_WAIT if is_ours else 0.0))
            except BlockingIOError:
                if is_ours or time.monotonic() > deadline:
                    raise
                time.sleep(SECONDS_BETWEEN_LOOKS)  # another run is about to write its config there
                continue
            if find_run_folder(settings) != folder:  # another run took it before the lock was ours
                continue
            remove_leftovers(folder)
            if not (folder / RESULT).is_file():
                save_config(folder, settings.config)
            yield folder
            return


def await_run_folder(settings: Settings) -> Path:
    """The folder that rank 0 has chosen, or is about to choose."""
    deadline = time.monotonic() + SECONDS_FOR_RANK_0
    while not ((folder := find_run_folder(settings)) / CONFIG).is_file() and time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return folder


def read_config(folder: Path) -> Config:
    """The saved config of a run; ValueError if it is damaged."""
    try:
        config = read_yaml(folder / CONFIG)
    except ValueError as error:
        raise ValueError(_damaged(folder)) from error
    parts = ("model", "data", "trainer")
    if not isinstance(config, dict) or not all(isinstance(config.setdefault(part, {}), dict) for part in parts):
        raise ValueError(_damaged(folder))
    if not {"layers", "estimator"} <= config["model"].keys():  # they have no default
        raise ValueError(_damaged(folder))
    _name_the_optimizer(config["model"])
    return config


def _name_the_optimizer(model: Config) -> None:
    """Configs saved before the optimiser could be chosen have RMSprop's settings among the model's."""
    old = {"learning_rate": "lr", "smoothing": "alpha", "epsilon": "eps"}
    settings = {new: model.pop(name) for name, new in old.items() if name in model}
    if settings:
        model["optimizer"] = {"class_path": "torch.optim.RMSprop", "init_args": settings}


def save_config(folder: Path, config: Config) -> None:
    """Write config.yaml."""
    write_atomically(folder / CONFIG, yaml.safe_dump(config, sort_keys=False))


@lru_cache(maxsize=1000)
def _saved_settings(path: Path, changed: int) -> dict[str, Any]:
    """The settings in a config.yaml, read once after each change."""
    return settings_of(read_config(path.parent))


def _home(results_dir: Path, config: Config) -> Path:
    runs = results_dir / "runs"
    if "class_path" in config["data"]:
        runs /= snake_case(config["data"]["class_path"].rsplit(".", 1)[-1])
    return runs / architecture_name(config["model"]["layers"])


def _damaged(folder: Path) -> str:
    return (
        f"{folder / CONFIG} is damaged, expected the saved config of a run; delete it, and the command that started "
        "the run continues it"
    )
