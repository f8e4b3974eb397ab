"""Where runs live: results/runs/<architecture>/<estimator>/seed<k>/; with another data set than MNIST, runs/<data>/...

A run is identified by its saved config: if the folder is taken by a run with other settings, the next free name
(seed0-2, seed0-3, ...) is used and nothing is overwritten.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

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
    """The folder that holds this run already, or the first free one."""
    home, wanted = _home(settings), settings_of(settings.config)
    seed = f"seed{settings.config['seed_everything']}"
    taken = sorted(path.parent for name in (seed, f"{seed}-*") for path in home.glob(f"{name}/{CONFIG}"))
    for folder in taken:
        if not differences(settings_of(read_config(folder)), wanted):
            return folder
    names = (seed if number == 1 else f"{seed}-{number}" for number in count(1))
    return next(home / name for name in names if home / name not in taken)


@contextmanager
def claimed_run_folder(settings: Settings) -> Iterator[Path]:
    """Choose the run's folder and write its config there under the folder's lock, which is held until the end.

    BlockingIOError if another process is working on this very run.
    """
    with ExitStack() as held:
        with lock.locked_run(_home(settings), SECONDS_FOR_RANK_0):  # of several runs that start, one chooses at a time
            folder = find_run_folder(settings)
            held.enter_context(lock.locked_run(folder))
            remove_leftovers(folder)
            if not (folder / RESULT).is_file():
                save_config(folder, settings.config)
        yield folder


def await_run_folder(settings: Settings) -> Path:
    """The folder that rank 0 has chosen, or is about to choose."""
    deadline = time.monotonic() + SECONDS_FOR_RANK_0
    while not ((folder := find_run_folder(settings)) / CONFIG).is_file() and time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return folder


def read_config(folder: Path) -> Config:
    """The saved config of a run; ValueError if it is damaged."""
    path = folder / CONFIG
    try:
        config = read_yaml(path)
        has_parts = all(isinstance(config[part], dict) for part in ("model", "data", "trainer"))
        is_whole = has_parts and {"layers", "estimator"} <= config["model"].keys()  # which have no default
    except (ValueError, LookupError, TypeError):
        is_whole = False
    if not is_whole:
        raise ValueError(
            f"{path} is damaged, expected the saved config of a run; delete it, and the command that started the run "
            "continues it"
        )
    return dict(config)


def save_config(folder: Path, config: Config) -> None:
    """Write config.yaml."""
    write_atomically(folder / CONFIG, yaml.safe_dump(config, sort_keys=False))


def _home(settings: Settings) -> Path:
    runs = settings.results_dir / "runs"
    if "class_path" in settings.config["data"]:
        runs /= snake_case(settings.config["data"]["class_path"].rsplit(".", 1)[-1])
    return runs / architecture_name(settings.config["model"]["layers"]) / settings.estimator_name
