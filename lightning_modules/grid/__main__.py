"""bash reproduce.sh: parse the options, take the lock, then load what is heavy; mistakes are answered before that."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lightning_modules.grid.options import RESULTS, parse_options
from lightning_modules.run.lock import locked

PAPER = "paper.json"


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0, or 1 if a run failed, 2 after a mistake, reported in one sentence, 130 when interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse_options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _check_writable(options.results)
        with locked(options.results) as lock:
            started = time.monotonic()
            print("preparing ...", file=sys.stderr, flush=True)
            from lightning_modules.grid import reproduce

            return reproduce.reproduce(options, lock, _as_typed(arguments), started)
    except KeyboardInterrupt:
        return _say("interrupted; the same command continues from the last checkpoints", 130)
    except (OSError, ValueError) as error:
        return _say(" ".join(str(error).split()), 2)
    except Exception as error:
        from lightning_modules.console import mistake_of_the_program

        return _say(mistake_of_the_program(error), 1)


def _check_writable(results: Path) -> None:
    """Fail before hours of training, not after."""
    trial = results / ".writable"
    try:
        results.mkdir(parents=True, exist_ok=True)
        trial.write_text("yes\n")
        trial.unlink()
    except OSError as error:
        raise OSError(
            f"cannot write to {results} ({error.strerror}), expected a folder for results; make it writable"
        ) from None
    if not (results / PAPER).is_file():
        shutil.copyfile(RESULTS / PAPER, results / PAPER)


def _as_typed(arguments: Sequence[str]) -> str:
    shown = list(arguments)
    if "--called-from" in shown:
        position = shown.index("--called-from")
        del shown[position : position + 2]
    return " ".join(["bash reproduce.sh", *shown])


def _say(sentence: str, code: int) -> int:
    print(f"reproduce.sh: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
