"""bash reproduce.sh: parse the options, take the lock, train. A mistake in the options is answered at once."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from lightning_modules import RESULTS
from lightning_modules.grid.options import Options, parse_options
from lightning_modules.run.lock import locked
from releg.files import check_writable, remove_leftovers, write_atomically
from releg.records.file_names import PAPER

PROGRAM = "reproduce.sh"


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, or 1 if a run failed, else that of console.answered."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
    except ValueError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    from lightning_modules.command_line.console import answered  # which loads torch

    return answered(lambda: _run(options), PROGRAM)


def _run(options: Options) -> int:
    _prepare(options.results)
    with locked(options.results) as lock:
        remove_leftovers(options.results)
        print("preparing ...", file=sys.stderr, flush=True)
        from lightning_modules.grid.grid import Grid, reproduce

        return reproduce(Grid(options, lock))


def _prepare(results: Path) -> None:
    check_writable(results)
    if not (results / PAPER).is_file():
        write_atomically(results / PAPER, (RESULTS / PAPER).read_bytes())


if __name__ == "__main__":
    sys.exit(main())
