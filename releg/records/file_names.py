"""The names of the files that one part of the program writes and another one reads."""

from __future__ import annotations

# In the folder of a run
CONFIG = "config.yaml"
RESULT = "result.json"  # which marks the run as finished
METRICS = "metrics.csv"
VARIANCES = "grad_variance.csv"

# In results/: what commands write
PAPER = "paper.json"  # the paper's own numbers, written by hand
RUNS = "runs.json"
RACE = "race/runs.json"
TRIALS = "recipe/trials.json"
PROTOCOL_CURVES = "protocol/curves.json"
COMPARE = "compare.json"
TEST_BITS = "test_bits.json"
BENCH = "bench.json"
LIBRARY = "library.json"
PYRO = "pyro.json"
CURVES = "curves"  # the folder of event files of the published runs
WEIGHTS = "weights"  # the folder of the published models
MEASUREMENTS = "variance"  # the folder of the gradient variances at the end of runs

# In results/: the numbers of pages
TABLE1 = "table1.json"
FIGURE1, FIGURE1_VARIANCES = "figure1.csv", "figure1_variances.csv"
RECORDS_PAGE = "records.md"  # from RUNS
FIGURE1_PAGE, FIGURE1_MORE = "figure1.md", "figure1_more.png"
RECIPE_PAGE = "recipe.md"  # from TRIALS
