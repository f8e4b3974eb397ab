#!/usr/bin/env bash
# Table 1 and Figure 1 from a fresh clone: sets up, trains, measures, writes results/mine/ and prints the table.
#
# bash reproduce.sh [--budget smoke|quick|standard|converged|paper] [--seeds N] [--jobs N]
#                   [--only ARCHITECTURE[,ESTIMATOR]]
#                   [--launcher local|ray] [--ray-address ADDRESS] [--gpus-per-run SHARE]
# bash reproduce.sh --verify        train nothing: evaluate the published weights on the test images
#
# The same command again continues after an interruption. RELEG_PYTHON and RELEG_VENV are those of tests/run.sh.
set -euo pipefail

caller=$PWD
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=$("${RELEG_PYTHON:-python3}" "$root/tests/environment.py")
cd -- "$root"
# If clones share an environment, its editable installation is that of only one of them: run this one.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

if [ "${1:-}" = --verify ]; then
    shift
    cd -- "$caller"  # what paths are relative to
    exec "$(dirname -- "$python")/releg" verify "$@"
fi
exec "$python" -m lightning_modules.grid --called-from "$caller" "$@"
