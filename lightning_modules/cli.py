"""The releg command: fit, validate and test, and the project's own commands beside them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable

from lightning_modules.console import answered, complain, quieten
from lightning_modules.run import life, ranks
from lightning_modules.run.settings import COMMANDS, Settings

OWN_COMMANDS = {
    "variance": "variance of the gradient per layer at a checkpoint, for any list of estimators",
    "compare": "every estimator at the same weights: variance, bias, cost",
    "verify": "the published weights of Table 1, evaluated on the test images",
    "bench": "time and memory of a training step with each estimator, on this machine",
}
USAGE = """usage: releg COMMAND [OPTIONS]; releg COMMAND --help explains the options

  fit        train; the same command again continues an interrupted run
  validate   bound of a checkpoint on the validation images
  test       bounds of a checkpoint on the test images
"""


def lightning_command(command: str, arguments: list[str]) -> int:
    """Fit, validate or test."""
    quieten()
    settings = Settings(command, arguments)
    if command == "fit":
        life.fit(settings)
    else:
        life.evaluate(settings)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Entry point. Returns the exit code: 0, or 2 after one sentence about what was wrong."""
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-h"):
        print(USAGE + "".join(f"  {name:<10} {text}\n" for name, text in OWN_COMMANDS.items()), end="")
        return 0 if arguments else 2
    run: Callable[[], int]
    if command in OWN_COMMANDS:
        own = importlib.import_module(f"lightning_modules.commands.{command}")
        run = lambda: own.main(arguments[1:])  # noqa: E731
    elif command in COMMANDS:
        run = lambda: lightning_command(command, arguments[1:])  # noqa: E731
    else:
        known = ", ".join([*COMMANDS, *OWN_COMMANDS])
        return complain(f"there is no command {command}, expected one of {known}; see releg --help")
    ranks.follow_launcher()
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # classes of the user's own, by their dotted names, as `python -m` finds them
    return answered(run)


if __name__ == "__main__":
    sys.exit(main())
