"""The releg command: fit, validate and test, and the project's own commands beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

from lightning_modules.command_line.startup import find_own_modules, loading, not_from_here

COMMANDS = {
    "fit": "train; the same command again continues an interrupted run",
    "validate": "bound of a checkpoint on the validation images",
    "test": "bounds of a checkpoint on the test images",
}
OWN_COMMANDS = {
    "variance": "variance of the gradient per layer at a checkpoint, for any list of estimators",
    "compare": "every estimator at the same weights: variance, bias, cost",
    "verify": "the published weights of Table 1, evaluated on the test images",
    "bench": "time and memory of a training step with each estimator, on this machine",
}
USAGE = "usage: releg COMMAND [OPTIONS]; releg COMMAND --help explains the options\n"


def main(arguments: list[str] | None = None) -> int:
    """Entry point. Returns the exit code: 0, or 2 after one sentence about what was wrong."""
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-h"):
        print("\n".join([USAGE, *(f"  {name:<10} {text}" for name, text in (COMMANDS | OWN_COMMANDS).items())]))
        return 0 if arguments else 2
    with loading("releg"):
        from lightning_modules.command_line.console import answered, complain, quieten
        from lightning_modules.run import ranks

        if command not in COMMANDS | OWN_COMMANDS:
            known = ", ".join(COMMANDS | OWN_COMMANDS)
            return complain(f"there is no command {command}, expected one of {known}; see releg --help")
        run = _load(command, arguments[1:])
    ranks.follow_launcher()
    find_own_modules(arguments)
    quieten()
    return answered(run)


def _load(command: str, arguments: list[str]) -> Callable[[], int]:
    """The command, ready to run."""
    if command in OWN_COMMANDS:
        own = import_module(f"lightning_modules.command_line.{command}")
        return lambda: own.main(arguments)
    life = import_module("lightning_modules.run.life")
    return lambda: life.run(command, arguments)


if __name__ == "__main__":
    not_from_here()
    sys.exit(main())
