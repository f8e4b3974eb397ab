"""The runs of Table 1: planned, timed, launched and collected."""
