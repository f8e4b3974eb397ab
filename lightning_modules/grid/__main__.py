"""bash reproduce.sh: parse the options, take the lock, then load what is heavy; mistakes are answered before that."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from lightning_modules import RESULTS
from lightning_modules.command_line.error_sentences import is_out_of_memory, mistake_of_the_program, one_sentence
from lightning_modules.command_line.startup import loading, not_from_here
from lightning_modules.grid.options import parse_options
from lightning_modules.run.lock import locked
from releg.files import check_writable, remove_leftovers, write_atomically
from releg.records.file_names import PAPER


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0, or 1 if a run failed, 2 after a mistake, reported in one sentence, 130 when interrupted."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _prepare(options.results)
        with locked(options.results) as lock:
            remove_leftovers(options.results)
            print("preparing ...", file=sys.stderr, flush=True)
            with loading("reproduce.sh"):
                from lightning_modules.grid.grid import Grid, reproduce

            return reproduce(Grid(options, lock))
    except KeyboardInterrupt:
        return _say("interrupted; the same command continues from the last checkpoints", 130)
    except (OSError, ValueError) as error:
        return _say(one_sentence(error), 2)
    except Exception as error:
        return _say(one_sentence(error), 2) if is_out_of_memory(error) else _say(mistake_of_the_program(error), 1)


def _prepare(results: Path) -> None:
    check_writable(results)
    if not (results / PAPER).is_file():
        write_atomically(results / PAPER, (RESULTS / PAPER).read_bytes())


def _say(sentence: str, code: int) -> int:
    print(f"reproduce.sh: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    not_from_here()
    sys.exit(main())
