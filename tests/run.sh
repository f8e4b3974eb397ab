#!/usr/bin/env bash
# bash tests/run.sh                  set up, lint, check types and scripts, run the suite
# bash tests/run.sh --long           set up, run the long tests: they kill processes and start clusters
# bash tests/run.sh ARGUMENTS        set up, run pytest with these arguments, from the project's root
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
python=$("${RELEG_PYTHON:-python3}" "$root/tests/environment.py")
cd -- "$root"
# If clones share an environment, its editable installation is that of only one of them: test this one.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

part=
if [ "$#" -eq 0 ]; then
    part=short
    # Compile the kernel once in the meantime, not in every worker
    for type in float32 float64; do
        "$python" -c "from releg.kernels.cpu.entry import entry_for; entry_for('$type')" &
    done
    "$python" -m ruff check
    "$python" -m ruff format --check
    "$python" -m mypy
    shopt -s nullglob
    "$(dirname -- "$python")/shellcheck" .ci/run ./*.sh tests/*.sh
    wait
elif [ "$*" = --long ]; then
    part=long
fi
if [ -n "$part" ]; then
    # One worker more than cores, at most six, because many tests wait for a process. The tests of a file stay together:
    # they share what they train.
    cores=$("$python" -c 'import os; print(min(5, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))')
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    set -- --part "$part" -n "$((cores + 1))" --dist loadfile --no-loadscope-reorder
fi
exec "$python" -m pytest "$@"
