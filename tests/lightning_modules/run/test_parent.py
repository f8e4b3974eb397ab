"""What a run and the process that started it owe each other."""

import subprocess
import sys

from tests.environment import ROOT
from tests.processes import end_all

# A process that would sleep for a minute, started by one that prints its number and ends
CHILD = (
    "import sys, time; from lightning_modules.run.parent import end_with; end_with(int(sys.argv[1])); time.sleep(60)"
)
PARENT = (
    "import os, subprocess, sys\n"
    f"child = subprocess.Popen([sys.executable, '-c', {CHILD!r}, str(os.getpid())], stdout=subprocess.DEVNULL)\n"
    "print(child.pid)"
)


def test_a_process_ends_with_the_one_that_started_it() -> None:
    parent = subprocess.run([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert end_all([int(parent.stdout)], patience=10) == 0
