"""Fresh processes for memory measurements: a helper process imports everything once and forks for each request.

multiprocessing's fork server does not help here: it would run the command's main module in every fork.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import traceback
from types import TracebackType
from typing import IO

from lightning_modules.bench.memory import LINUX, Request, measure
from lightning_modules.bench.steps import PYRO, available

Answer = tuple[float | None, str]  # MiB, and the traceback if there is one


class FreshProcess:
    """Measures requests, each in a process of its own. Use it in a with statement.

    Outside Linux it is not safe to fork once libraries are loaded, so there the helper is restarted each time.
    """

    def __init__(self) -> None:
        self._helper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> FreshProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def peak_mib(self, request: Request) -> float | None:
        """Peak MiB of the requested step; None if it cannot be measured here or the process was killed."""
        helper = self._helper = self._helper or self._start()
        assert helper.stdin is not None
        assert helper.stdout is not None
        try:
            _send(helper.stdin, request)
            mib, failure = pickle.load(helper.stdout)
        except (BrokenPipeError, EOFError):
            mib, failure = None, "" if helper.wait() < 0 else f"it ended with exit code {helper.returncode}"
            self._stop()
        if not LINUX:
            self._stop()
        if failure:
            raise RuntimeError(f"the process that measures the memory of {request.name} failed: {failure}")
        return mib

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-m", __name__]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def _stop(self) -> None:
        if self._helper is not None:
            assert self._helper.stdin is not None
            assert self._helper.stdout is not None
            self._helper.stdin.close()  # the helper ends with its input
            self._helper.wait()
            self._helper.stdout.close()
            self._helper = None


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        if not LINUX:
            _send(answers, answer_to(request))
        elif (child := os.fork()) == 0:
            _send(answers, answer_to(request))
            os._exit(0)
        elif os.waitpid(child, 0)[1] != 0:
            _send(answers, (None, ""))  # killed, probably because memory ran out


def answer_to(request: Request) -> Answer:
    """Return the measurement, or what went wrong."""
    try:
        return measure(request), ""
    except Exception:
        return None, traceback.format_exc()


def _send(stream: IO[bytes], message: object) -> None:
    pickle.dump(message, stream)
    stream.flush()


def import_everything() -> None:
    """Import once, so that no fork has to. Compute nothing: threads do not survive a fork."""
    names = available()
    if PYRO in names:
        importlib.import_module("lightning_modules.bench.pyro_step")
    if "crn_cpu" in names:
        importlib.import_module("releg.kernels.cpu")


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints does not mix with the answers
    import_everything()
    serve(sys.stdin.buffer, replies)
