"""The settings of a run: read from config files and arguments, completed by defaults, and turned into objects."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytorch_lightning as pl
import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, Namespace
from jsonargparse.typing import PositiveFloat
from pytorch_lightning.cli import LightningArgumentParser

from lightning_modules import CONFIGS
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.console import USER_ERRORS
from lightning_modules.command_line.error_sentences import is_out_of_memory, one_sentence
from lightning_modules.command_line.untrusted_configs import TRUST_HELP, only_shipped_classes, read_yaml
from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import import_all
from releg.records.file_names import CONFIG
from releg.records.names import snake_case
from releg.rmsprop import PAPER

Config = dict[str, Any]  # as config.yaml keeps it
DESCRIPTION = """Settings come from config files, of which later ones override earlier ones, and from these
options, which override both.
--model.estimator.help NAME and --data.help NAME explain the settings of a class."""
OF_THE_COMMAND = ("checkpoint_minutes", "trust")  # not of the run
OWN_PACKAGES = ("releg", "lightning_modules")
DEFAULT_DATA = f"{BinarizedMNIST.__module__}.{BinarizedMNIST.__qualname__}"


class Built(NamedTuple):
    """What settings describe."""

    module: SBNModule
    data: BinaryImages
    trainer: dict[str, Any]  # arguments of a Trainer
    method: dict[str, Any]  # arguments of its fit, validate or test


class Settings:
    """What the user asked for: parsed and checked, not yet built.

    Args:
        command: fit, validate or test.
        arguments: what follows it on the command line.
    """

    def __init__(self, command: str, arguments: list[str]) -> None:
        self.command = command
        self._parser, self._method_arguments = _build_parser(command)
        words, self._beside = _with_checkpoint(command, arguments)
        with self._trust():
            self._parsed = self._parser.parse_args(find_configs(words))
        if self._parsed.data is None:
            raise ValueError("data is null, expected settings of the images; leave it out for BinarizedMNIST")
        _check_trainer(self._parsed.trainer)

    def _trust(self) -> AbstractContextManager[None]:
        return nullcontext() if self._beside is None else only_shipped_classes(self._beside)

    @cached_property
    def config(self) -> Config:
        """All settings, as config.yaml keeps them."""
        return {key: value for key, value in _plain(self._parser, self._parsed).items() if key not in OF_THE_COMMAND}

    @property
    def checkpoint_minutes(self) -> float:
        """How often fit saves checkpoints."""
        return float(self._parsed.checkpoint_minutes)

    @property
    def results_dir(self) -> Path:
        """Folder that holds runs/."""
        return Path(self._parsed.results_dir)

    @cached_property
    def estimator_name(self) -> str:
        """The name of the estimator's config, the user's own or a shipped one, or else of its class."""
        given = [Path(str(file)) for file in self._parsed.config or []]
        return estimator_name(self.config, given[::-1])

    def build(self) -> Built:
        """Module, data, and the arguments of Trainer and method; ValueError, with a sentence, if they do not work."""
        try:
            with self._trust():
                built = self._parser.instantiate(self._parsed)
        except USER_ERRORS:
            raise
        except Exception as error:  # whatever the classes of Lightning, torch or the user raise
            if is_out_of_memory(error):
                raise
            raise ValueError(
                f"these settings do not work ({type(error).__name__}: {one_sentence(error)}), expected "
                f"some that releg {self.command} --help describes; correct them"
            ) from error
        method = {name: built[name] for name in self._method_arguments}
        return Built(built.model, built.data, vars(built.trainer), method)


def estimator_name(config: Config, given: Iterable[Path] = ()) -> str:
    """The name of the estimator of a run, after the first of these files that describes it, or a shipped one."""
    chosen = complete(config["model"]["estimator"])
    for file in [*given, *sorted((CONFIGS / "estimator").glob("*.yaml"))]:
        if _estimator_in(file, chosen["class_path"]) == chosen:
            return file.stem
    return snake_case(chosen["class_path"].rsplit(".", 1)[-1])


def _check_trainer(trainer: Any) -> None:
    """ValueError for an empty list or null where the Trainer takes none: the parser accepts them everywhere."""
    if not isinstance(trainer, Namespace):
        raise ValueError(f"trainer is {json.dumps(trainer)}, expected arguments of the Trainer; leave it out for none")
    for name, argument in inspect.signature(pl.Trainer.__init__).parameters.items():
        takes_null = argument.default is None or type(None) in get_args(argument.annotation)
        if not takes_null and trainer.get(name, argument.default) is None:
            raise ValueError(f"trainer.{name} is null, expected a value; leave it out for {argument.default}")


def build(config: Config, data_dir: Path | None = None) -> tuple[SBNModule, BinaryImages]:
    """The module, with its initial weights, and the data that a config describes, from another folder if given."""
    parser = ArgumentParser(exit_on_error=False)
    _add_model_and_data(parser)
    described = copy.deepcopy({key: config[key] for key in ("model", "data")})  # the parser writes into it
    if data_dir is not None:
        data = described["data"]
        (data.setdefault("init_args", {}) if "class_path" in data else data)["data_dir"] = str(data_dir)
    built = parser.instantiate(parser.parse_object(described))
    return built.model, built.data


@lru_cache
def default_config() -> Config:
    """The default of every setting that has one."""
    parser, _ = _build_parser("fit")
    return _plain(parser, parser.get_defaults())


def _build_parser(command: str) -> tuple[LightningArgumentParser, list[str]]:
    """The parser, and the names of the arguments that belong to the Trainer's method."""
    parser = LightningArgumentParser(prog=f"releg {command}", description=DESCRIPTION, exit_on_error=False)
    add = parser.add_argument
    add("-c", "--config", action=ActionConfigFile, help="Config file, a shipped one or your own; may be repeated.")
    add("--seed_everything", type=int, default=0, help="Seed of weights, noise and the order of the images.")
    add("--results_dir", type=str, default="results", help="Folder that holds runs/.")
    if command == "fit":
        minutes = "Minutes of training after which a checkpoint is saved, if no validation has saved one."
        add("--checkpoint_minutes", type=PositiveFloat, default=5.0, help=minutes)
    else:
        add("--trust", action="store_true", help=TRUST_HELP)
    parser.add_lightning_class_args(pl.Trainer, "trainer")
    _add_model_and_data(parser)
    parser.link_arguments("seed_everything", "model.seed")
    parser.link_arguments("seed_everything", "data.init_args.seed")
    objects = {"model", "datamodule", "dataloaders", "train_dataloaders", "val_dataloaders"}
    return parser, parser.add_method_arguments(pl.Trainer, command, skip=objects)


def _add_model_and_data(parser: ArgumentParser) -> None:
    import_all()
    parser.add_class_arguments(SBNModule, "model", fail_untyped=False, sub_configs=True)
    # jsonargparse cannot see what a function builds, and the default is part of a run's identity
    parser.set_defaults({"model.optimizer": {"class_path": "torch.optim.RMSprop", "init_args": PAPER}})
    explained = (
        "Settings of BinarizedMNIST, for instance --data.binarization fixed --data.batch_size 100; "
        "--data.help BinarizedMNIST explains them. Or the class path of another subclass of BinaryImages."
    )
    parser.add_subclass_arguments(BinaryImages, "data", default={"class_path": DEFAULT_DATA}, help=explained)
    parser.link_arguments("data.data_size", "model.data_size", apply_on="instantiate")


def _plain(parser: LightningArgumentParser, parsed: Any) -> Config:
    """Plain values. BinarizedMNIST's settings are directly under data; null is kept only if it is not the default."""
    config, defaults = (
        yaml.load(parser.dump(each, skip_link_targets=False, skip_unset=False, skip_validation=True), yaml.CSafeLoader)
        for each in (parsed, parser.get_defaults())
    )
    config["data"] = data_settings(config["data"])
    return _without_nulls(config, defaults)


def data_settings(data: Config) -> Config:
    """The data part of a config; for BinarizedMNIST without its class path, as it is saved."""
    return data.get("init_args", {}) if data.get("class_path") == DEFAULT_DATA else data


def _without_nulls(config: Any, defaults: Any) -> Any:
    if not isinstance(config, dict):
        return config
    known = defaults if isinstance(defaults, dict) else {}
    return {
        key: _without_nulls(value, known.get(key))
        for key, value in config.items()
        if value is not None or known.get(key) is not None
    }


def complete(value: Any) -> Any:
    """A setting, with the defaults of the classes it names filled in. Imports none but the project's own."""
    if isinstance(value, list):
        return [complete(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: complete(each) for key, each in value.items()}
    if "class_path" in inner:
        inner["init_args"] = class_defaults(inner["class_path"]) | (inner.get("init_args") or {})
    return inner


@lru_cache
def class_defaults(class_path: str) -> Config:
    """The plain defaults of a class; those of a user's class only if it is loaded already."""
    module, _, name = class_path.rpartition(".")
    try:
        if module.split(".")[0] in OWN_PACKAGES:
            importlib.import_module(module)
        parameters = inspect.signature(getattr(sys.modules[module], name)).parameters
        return {
            each.name: json.loads(json.dumps(each.default)) for each in parameters.values() if _is_plain(each.default)
        }
    except (ImportError, KeyError, AttributeError, TypeError, ValueError):
        return {}


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each) for each in value)
    return isinstance(value, (bool, int, float, str))


def _estimator_in(file: Path, class_path: str) -> Config | None:
    """The estimator in a config file, if the file describes one of that class and nothing else."""
    try:
        content = read_yaml(file)
        estimator = content["model"]["estimator"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    only = set(content) == {"model"} and set(content["model"]) == {"estimator"} and isinstance(estimator, dict)
    return complete(estimator) if only and estimator.get("class_path") == class_path else None


def _with_checkpoint(command: str, arguments: list[str]) -> tuple[list[str], Path | None]:
    """--ckpt means --ckpt_path. To test a checkpoint the config beside it is used, unless another one is given.

    Returns the words, and that config unless the user trusts it.
    """
    words = [re.sub(r"^--ckpt(?==|$)", "--ckpt_path", word) for word in arguments]
    if command == "fit" or any(word in ("--config", "-c") or word.startswith("--config=") for word in words):
        return words, None
    paths = [word.removeprefix("--ckpt_path=") for word in words if word.startswith("--ckpt_path=")]
    paths += [after for word, after in pairwise(words) if word == "--ckpt_path"]
    beside = next((path for each in paths[-1:] if (path := Path(each).with_name(CONFIG)).is_file()), None)
    if beside is None:
        return words, None
    return ["--config", str(beside), *words], None if "--trust" in words else beside


def find_configs(arguments: list[str]) -> list[str]:
    """Replace names of shipped configs by their paths; files that exist as given win.

    FileNotFoundError if there is no such file.
    """
    found = list(arguments)
    for position, argument in enumerate(arguments):
        if argument in ("--config", "-c") and position + 1 < len(arguments):
            found[position + 1] = _find_config(arguments[position + 1])
        elif argument.startswith("--config="):
            found[position] = f"--config={_find_config(argument.removeprefix('--config='))}"
    return found


def _find_config(name: str) -> str:
    for path in (Path(name), CONFIGS / name):
        if path.is_file():
            read_yaml(path)  # refused here, before the parser writes out its aliases
            return str(path)
    shipped = sorted(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.yaml"))
    raise FileNotFoundError(f"there is no config {name}, expected a file or one of {', '.join(shipped)}; name one")
