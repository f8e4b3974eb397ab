"""The runs of Table 1: planned, timed, launched and collected. trials.py and protocol_runs.py are other studies."""
