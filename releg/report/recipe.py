"""recipe.md: trials of learning rates and warm-ups, those of the budgets among them, by validation bound."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from releg.files import write_atomically
from releg.records.file_names import RECIPE_PAGE, RUNS, TRIALS
from releg.records.names import BUDGETS, CONSTANT_RATE, ESTIMATORS, EXTENDED_ARCHITECTURE, PUBLISHED_BUDGET, label_of
from releg.report.artefacts import readable
from releg.report.luck import by_luck, pooled_variance
from releg.report.runs import Run, commits, read_manifest
from releg.report.tables import listed, table

Entry = dict[str, Any]
Recipe = tuple[float, str]  # peak rate and shape

BUDGET_RECIPE: Recipe = (0.003, "linear")  # of quick, standard and converged

INTRODUCTION = f"""# The recipe: warm-up, peak rate and shape of the learning rate

Trials with RMSprop and batches of 100: negative bound on the validation images, in nats (lower is better), of the best
validation of each run. `python -m lightning_modules.studies.recipe` makes the trials and this page, from `{TRIALS}`.
No test bound is compared; but it was a test bound, that of CRN on SBN(200-200-200), which showed that the published
table needed a warm-up. Every number is of one run, with seed 0.
"""

WARMUP = """## Warm-up

RMSprop's average of squared gradients starts at zero, so its first steps are up to ten times as long as later ones, and
can switch units off. A warm-up multiplies the falling rate by a factor that rises from zero to one in that many steps,
so it also lowers the highest rate. A unit is in use if its probability varies over 2,000 validation images, with a
standard deviation above 0.02. Layers are listed from x upwards.
"""

CELLS = """Runs of the published table, and the same runs without their warm-up:
"""

LUCK = "twice the standard deviation of a difference between two seeds, from the published runs"

SHAPES = f"""## Peak rate and shape

SBN({EXTENDED_ARCHITECTURE}), no warm-up. The rate falls from its peak to zero at the last step: in a straight
line, as half a cosine wave, or in a straight line after half of the steps at the peak.

The budgets `quick`, `standard` and `converged` have one recipe for both estimators: a straight line from 0.003, in the
longer two with a warm-up. It was chosen before these trials, which check it. `quick` keeps the straight line, with
which all 24 estimators of the race were trained.
"""

GAINS = """By how many nats the best other recipe ends below the straight line from 0.003, both without a warm-up:
"""

BITS = """## Training bits

A run of the published table, and the same run on training bits that were drawn once instead of at every access. The
validation bits are the same. Bounds are those of the best validation.
"""


def write_recipe(results: Path) -> list[Path]:
    """Write recipe.md if there are trials."""
    if not (results / TRIALS).is_file():
        return []
    published = _published(results)
    with readable(results / TRIALS, "what python -m lightning_modules.studies.recipe writes", "run it again"):
        entries: list[Entry] = json.loads((results / TRIALS).read_bytes())
        text = _page(entries, published)
    return [write_atomically(results / RECIPE_PAGE, text)]


def _published(results: Path) -> list[Entry]:
    """The runs of the published table that belong beside the trials: those with seed 0 whose rate falls."""
    if not (results / RUNS).is_file():
        return []
    runs = read_manifest(results).runs
    return [
        {
            "architecture": run.net,
            "estimator": run.estimator,
            "rate": run.rate,
            "shape": run.schedule,
            "steps": run.steps,
            "binarization": run.config.get("data.binarization"),
            "warmup": run.warmup,
            "val/elbo": run.result["val/elbo"],
            "best_step": run.result["best_step"],
            "sd": _over_seeds([other for other in runs if (other.net, other.estimator) == (run.net, run.estimator)]),
            "commit": commits(run.provenance),
        }
        for run in runs
        if run.seed == 0 and run.schedule != CONSTANT_RATE
    ]


def _over_seeds(runs: Sequence[Run]) -> float | None:
    """The standard deviation of the validation bounds of a cell; None if it has one run."""
    return statistics.stdev(run.result["val/elbo"] for run in runs) if len(runs) > 1 else None


def best_recipes(entries: Sequence[Entry]) -> dict[str, Recipe]:
    """The best recipe of each estimator that has trials, by validation bound."""
    best: dict[str, Entry] = {}
    for entry in entries:
        name = entry["estimator"]
        if name not in best or entry["val/elbo"] > best[name]["val/elbo"]:
            best[name] = entry
    return {name: _recipe(entry) for name, entry in best.items()}


def best_common_recipe(entries: Sequence[Entry]) -> Recipe | None:
    """The recipe with the best mean validation bound over the estimators, if there is one that all have tried."""
    elbos: dict[Recipe, dict[str, float]] = {}
    for entry in entries:
        elbos.setdefault(_recipe(entry), {})[entry["estimator"]] = entry["val/elbo"]
    estimators = {entry["estimator"] for entry in entries}
    tried_by_all = {recipe: known for recipe, known in elbos.items() if known.keys() == estimators}
    return max(tried_by_all, key=lambda recipe: statistics.fmean(tried_by_all[recipe].values()), default=None)


def _net(entry: Entry) -> str:
    return str(entry.get("architecture", EXTENDED_ARCHITECTURE))


def tells_of_shapes(entry: Entry) -> bool:
    """Whether it is one of the runs in which only the peak rate, the shape and the length vary."""
    return _net(entry) == EXTENDED_ARCHITECTURE and not entry.get("warmup") and entry["binarization"] != "fixed"


def _page(trials: Sequence[Entry], published: Sequence[Entry]) -> str:
    fixed = [entry for entry in trials if entry["binarization"] == "fixed"]
    cells = [entry for entry in trials if entry["steps"] == BUDGETS[PUBLISHED_BUDGET] and entry not in fixed]
    warmups = [entry for entry in trials if _net(entry) != EXTENDED_ARCHITECTURE and entry not in cells]
    shapes = [entry for entry in (*trials, *published) if tells_of_shapes(entry)]
    without, bits = _pairs(cells, published, "warmup"), _pairs(fixed, published, "binarization")
    lines = [INTRODUCTION]
    if warmups:
        lines += [WARMUP, *_warmup_table(warmups), "", _warmup_choice(warmups), ""]
    if without:
        lines += [CELLS, *_cells_table(without), "", _cost_of_warmup(without, _luck(published)), ""]
    by_length = _by_length(shapes)
    if by_length:
        lines += [SHAPES, *_against_the_budgets(by_length)]
    for steps, here in by_length.items():
        lines += [f"### {steps:,} steps", "", *_of_one_length(here), "", *_best_of_one_length(here)]
        lines += _against_published(here, [entry for entry in published if entry["steps"] == steps], _luck(published))
    if bits:
        lines += [BITS, *_bits_table([entry for pair in bits for entry in pair]), ""]
    shown = [*warmups, *shapes, *(entry for pair in (*without, *bits) for entry in pair)]
    made = ", ".join(dict.fromkeys(commit for entry in shown for commit in entry["commit"].split("; ")))
    return "\n".join([*lines, f"The runs were made at commit {made}."]) + "\n"


def _by_length(entries: Sequence[Entry]) -> dict[int, list[Entry]]:
    """The entries of each number of steps, in rising order; a number with one recipe is no choice, and left out."""
    lengths = sorted({entry["steps"] for entry in entries})
    groups = {steps: [entry for entry in entries if entry["steps"] == steps] for steps in lengths}
    return {steps: here for steps, here in groups.items() if len({_recipe(entry) for entry in here}) > 1}


def _recipe(entry: Entry) -> Recipe:
    return entry["rate"], entry["shape"]


def gains(entries: Sequence[Entry]) -> dict[str, float]:
    """By how many nats the best other recipe of each estimator ends below that of the budgets, if both were tried."""
    budgets = {entry["estimator"]: entry["val/elbo"] for entry in entries if _recipe(entry) == BUDGET_RECIPE}
    others: dict[str, list[float]] = {}
    for entry in entries:
        if _recipe(entry) != BUDGET_RECIPE and entry["estimator"] in budgets:
            others.setdefault(entry["estimator"], []).append(entry["val/elbo"])
    return {name: max(elbos) - budgets[name] for name, elbos in others.items()}


def _against_the_budgets(by_length: dict[int, list[Entry]]) -> list[str]:
    """What the best other recipe of each estimator is worth, by length."""
    known = {steps: worth for steps, entries in by_length.items() if (worth := gains(entries))}
    if not known:
        return []
    head = ["steps", *(label_of(name) for name in ESTIMATORS)]
    body = [
        [f"{steps:,}", *(f"{worth[name]:.2f}" if name in worth else "" for name in ESTIMATORS)]
        for steps, worth in known.items()
    ]
    return [GAINS, *table(head, body, texts=0), ""]


def _pairs(trials: Sequence[Entry], published: Sequence[Entry], varied: str) -> list[tuple[Entry, Entry]]:
    """Each published run and the trial that differs from it in one setting; a trial without such a run is left out."""
    same = {"estimator", "rate", "shape", "steps", "warmup", "binarization"} - {varied}
    return [
        (other, one)
        for one in trials
        for other in published
        if _net(one) == _net(other)
        and all(one.get(name, 0) == other[name] for name in same)
        and one.get(varied, 0) != other[varied]
    ]


def _cells_table(pairs: Sequence[tuple[Entry, Entry]]) -> list[str]:
    """One row per cell of the published table."""
    head = ["SBN", "estimator", "without", "with", "difference"]
    body = [
        [
            _net(published),
            label_of(published["estimator"]),
            *(f"{-entry['val/elbo']:.2f}" for entry in (without, published)),
            f"{without['val/elbo'] - published['val/elbo']:+.2f}",
        ]
        for published, without in pairs
    ]
    return table(head, body, texts=2)


def _luck(published: Sequence[Entry]) -> float:
    """How far apart two runs that differ only in their seeds can be; zero if no cell has several seeds."""
    return by_luck(pooled_variance(entry["sd"] for entry in published), 1, 1)


def _cost_of_warmup(pairs: Sequence[tuple[Entry, Entry]], luck: float) -> str:
    """In how many cells it helps, what it costs in others, and where nothing can be said."""
    lost = [without["val/elbo"] - published["val/elbo"] for published, without in pairs]
    better, worse = [each for each in lost if each < -luck], [each for each in lost if each > luck]
    unclear = len(lost) - len(better) - len(worse)
    words = [f"The warm-up lowers the bound of {len(better)} of these {len(lost)} cells"]
    words += [f"raises that of {len(worse)} by up to {max(worse):.2f} nats"] if worse else []
    words += [f"changes that of {unclear} by no more than luck"] if unclear else []
    sentence = listed(words)
    return f"{sentence} ({luck:.2f} nats: {LUCK})." if luck else f"{sentence}."


def _bits_table(entries: Sequence[Entry]) -> list[str]:
    """One row per run."""
    head = ["SBN", "estimator", "training bits", "bound", "best step", "steps"]
    body = [
        [
            _net(entry),
            label_of(entry["estimator"]),
            "drawn once" if entry["binarization"] == "fixed" else "redrawn at every access",
            f"{-entry['val/elbo']:.2f}",
            f"{entry['best_step']:,}",
            f"{entry['steps']:,}",
        ]
        for entry in entries
    ]
    return table(head, body, texts=3)


def _warmup_table(entries: Sequence[Entry]) -> list[str]:
    """One row per run."""
    head = ["SBN", "estimator", "shape", "warm-up", "highest rate", "steps", "bound", "units in use, per layer"]
    body = [
        [
            entry["architecture"],
            label_of(entry["estimator"]),
            entry["shape"].replace("_", " "),
            f"{entry['warmup']:,}",
            f"{highest_rate(entry):.2g}",
            f"{entry['steps']:,}",
            f"{-entry['val/elbo']:.2f}",
            ", ".join(map(str, entry["units_in_use"])),
        ]
        for entry in entries
    ]
    return table(head, body, texts=3)


def highest_rate(entry: Entry) -> float:
    """Of a straight line to zero with a warm-up in its first half: the rate at the end of the warm-up."""
    return float(entry["rate"] * (1 - entry["warmup"] / entry["steps"]))


def _warmup_choice(entries: Sequence[Entry]) -> str:
    best = max(entries, key=lambda entry: entry["val/elbo"])
    part = f"{best['warmup'] / best['steps']:.0%} of the steps"
    return f"A warm-up of {part} was the best, for this net and estimator."


def _of_one_length(entries: list[Entry]) -> list[str]:
    """One row per recipe, the bounds of LR and CRN side by side, the best of each in bold."""
    head = ["peak rate", "shape", *(label_of(name) for name in ESTIMATORS)]
    elbos = {name: [e["val/elbo"] for e in entries if e["estimator"] == name] for name in best_recipes(entries)}
    best = {name: max(values) if len(values) > 1 else None for name, values in elbos.items()}  # else there is no choice
    body = []
    for rate, shape in dict.fromkeys(map(_recipe, entries)):
        known = {e["estimator"]: e["val/elbo"] for e in entries if _recipe(e) == (rate, shape)}
        cells = ["" if name not in known else _cell(known[name], best[name]) for name in ESTIMATORS]
        body.append([f"{rate:g}", shape.replace("_", " "), *cells])
    return table(head, body, texts=2)


def _best_of_one_length(entries: list[Entry]) -> list[str]:
    """The best recipes in words."""
    best = {f"for {label_of(name)}": recipe for name, recipe in best_recipes(entries).items()}
    if len(set(best.values())) > 1 and (common := best_common_recipe(entries)):
        best["for both by their mean"] = common
    words = [f"{_in_words(recipe)}, {whom}" for whom, recipe in best.items()]
    return [f"Best: {'; '.join(words)}.", ""]


def _in_words(recipe: Recipe) -> str:
    rate, shape = recipe
    return f"{rate:g}, {shape.replace('_', ' ')}"


def _against_published(entries: list[Entry], published: list[Entry], luck: float) -> list[str]:
    """By how much the best recipe ends below the published run of the same net, which has a warm-up."""
    words = []
    for name in best_recipes(entries):
        best = max(entry["val/elbo"] for entry in entries if entry["estimator"] == name)
        for run in published:
            if (run["estimator"], _net(run)) == (name, EXTENDED_ARCHITECTURE) and run["warmup"]:
                words.append(f"{best - run['val/elbo']:.2f} nats for {label_of(name)} ({-run['val/elbo']:.2f})")
    less = f" Less than {luck:.2f} can be luck." if luck else ""
    return [f"Below the published runs, which have a warm-up: {', '.join(words)}.{less}", ""] if words else []


def _cell(elbo: float, best: float | None) -> str:
    return f"**{-elbo:.2f}**" if elbo == best else f"{-elbo:.2f}"
