"""variance.md: the ratio of the gradient variances of LR and CRN, per layer and at the same weights."""

from __future__ import annotations

import math
from pathlib import Path

from releg.files import write_atomically
from releg.records.file_names import FIGURE1, VARIANCE_PAGE
from releg.records.names import label_of
from releg.report.artefacts import remove
from releg.report.figure1_data import (
    Measurement,
    Number,
    Point,
    amount,
    at_shared_weights,
    curves_of,
    from_csv,
    largest,
    layers_of,
    measured_run,
    measurement,
    measurement_file,
    number,
    read_measured,
    run_words,
)
from releg.report.runs import budget_sentence, commit_words, machine, read_manifest
from releg.report.tables import power_of_ten, table

PAPERS_RATIOS = (5, 8)  # LR / CRN in the paper's text, as powers of ten

INTRODUCTION = """# Gradient variance, LR against CRN

Variance of the estimated gradient w.r.t. the means of the Bernoulli units of SBN({net}), averaged over the
units of a layer; layer 1 is next to x. Both estimators are measured at the weights of {run},
on the same training images and noise: {amount}.
LR has the baselines that its run had learned by then. Standard errors are over images; those of ratios assume
independent numbers. Where rare events make up most of a number, its standard error is too small more often than not.
Everything is computed in float64. Uniform float32 numbers are multiples of 2⁻²⁴, so with the noise of training a unit
that should be on in one of 10¹⁵ samples is on in one of 10⁷, and LR's variance is larger by orders of magnitude.

- *Total*: the variance of all samples of all images together, within plus between images. We read the caption of the
  paper's Figure 1 like this, with its 50 million samples.
- *Within*: the variance of the samples of one image, averaged over images.
- *Exact*: LR's within-image variance with each unit's own noise integrated out. It still averages over the samples of
  the other units.

Sampled and exact values have the same expectation, but they part once units saturate. A unit with a mean m close to 0
is on in a fraction m of the samples, and there its LR estimate is 1/m times the signal. So most of the variance comes
from events that nearly every set of samples misses: the sampled value is usually far too low, and rises as samples are
added. CRN has no such events: it averages over both states of the unit.
"""


def write_variance(results: Path) -> list[Path]:
    """Write variance.md from figure1.csv; delete an old one if there are no measurements."""
    chosen = curves_of(read_manifest(results))
    every = from_csv(results / FIGURE1)
    points = at_shared_weights(every)
    if not (chosen and points):
        remove(results / VARIANCE_PAGE)
        return []
    at = largest(points)
    low, high = map(power_of_ten, PAPERS_RATIOS)
    lines = [INTRODUCTION.format(net=chosen[0].net, run=run_words(points), amount=amount(points))]
    lines += [f"## After {at.step:,} steps: total", "", *_total(points, at)]
    lines += ["", f"## After {at.step:,} steps: within an image", "", *_within(points, at)]
    lines += ["", "## During training: LR / CRN, sampled total", "", *_course(points, "total", "total")]
    lines += ["", "## During training: LR / CRN, exact within", "", *_course(points, "exact_within", "within")]
    lines += _of_each_seed(every, points[0].trained_with)
    paper = f"The paper's text gives ratios between {low} and {high}, and does not state the precision of its noise."
    lines += ["", f"{budget_sentence(chosen)} {paper}"]
    path = measurement_file(results, points[0].trained_with)
    if measured_run(chosen, path) is not None:
        lines += _how_measured(path, at)
    return [write_atomically(results / VARIANCE_PAGE, "\n".join(lines) + "\n")]


def _of_each_seed(points: list[Point], owner: str) -> list[str]:
    """The ratios at the weights of each seed, after the last step at which all were measured; empty if there is one."""
    mine = [point for point in points if point.trained_with == owner and point.layer is not None]
    seeds = sorted({point.seed for point in mine})
    shared = set.intersection(*({measurement(p) for p in mine if p.seed == seed} for seed in seeds))
    if len(seeds) == 1 or not shared:
        return []
    at, layers = max(shared), layers_of(mine)
    rows = []
    for seed in seeds:
        here = [point for point in mine if point.seed == seed]
        pairs = [[number(here, name, "total", layer, at) for name in ("lr", "crn")] for layer in layers]
        rows.append([str(seed), *(show(ratio(lr, crn)) for lr, crn in pairs)])
    title = f"## At the weights of each {label_of(owner)} run: LR / CRN, sampled total"
    where = f"After {at.step:,} steps, on {at.images:,} images."
    return ["", title, "", where, "", *table(["seed", *(f"layer {layer}" for layer in layers)], rows, texts=0)]


def _how_measured(path: Path, at: Measurement) -> list[str]:
    """At which commit and on which machine the variances at the end of the run were measured."""
    made = read_measured(path)
    where = f"at commit {commit_words(made)} on {machine(made)}"
    return ["", f"The {at.images:,} images after {at.step:,} steps were measured {where}."]


def ratio(top: Number, bottom: Number) -> Number:
    """The ratio of two numbers with independent errors."""
    if not bottom[0] or math.isnan(top[0]) or math.isnan(bottom[0]):
        return math.nan, math.nan
    value = top[0] / bottom[0]
    relative = math.hypot(top[1] / top[0] if top[0] else 0.0, bottom[1] / bottom[0])
    return value, abs(value) * relative


def show(one: Number) -> str:
    """153 ± 31, or (5.21 ± 0.62) × 10⁴, with two digits of the error."""
    value, error = one
    if math.isnan(value):
        return "–"
    exponent = math.floor(math.log10(abs(value))) if value else 0
    power = 0 if -3 <= exponent <= 3 else exponent
    value, error = value / 10.0**power, error / 10.0**power
    known = math.isfinite(error) and error > 0
    digits = max(0, 1 - math.floor(math.log10(error))) if known else max(0, 2 - exponent + power)
    text = f"{value:,.{digits}f} ± {error:,.{digits}f}" if known else f"{value:,.{digits}f}"
    return text if power == 0 else f"({text}) × {power_of_ten(power)}"


def _total(points: list[Point], at: Measurement) -> list[str]:
    rows = []
    for layer in layers_of(points):
        lr, crn = (number(points, name, "total", layer, at) for name in ("lr", "crn"))
        rows.append([str(layer), show(lr), show(crn), show(ratio(lr, crn)), against_paper(ratio(lr, crn))])
    return table(["layer", "LR", "CRN", "LR / CRN", "in the paper's range"], rows)


def against_paper(one: Number) -> str:
    """Whether a ratio lies in the range that the paper's text gives, and whether its standard error leaves a doubt."""
    low, high = (10.0**power for power in PAPERS_RATIOS)
    value, error = one
    if math.isnan(value):
        return "–"
    verdict = "below" if value < low else "above" if value > high else "yes"
    is_close = min(abs(value - limit) for limit in (low, high)) < 2 * error
    return f"{verdict}, but within two standard errors of the limit" if is_close else verdict


def _within(points: list[Point], at: Measurement) -> list[str]:
    rows = []
    for layer in layers_of(points):
        sampled, exact = (number(points, "lr", kind, layer, at) for kind in ("within", "exact_within"))
        crn = number(points, "crn", "within", layer, at)
        numbers = [sampled, exact, crn, ratio(sampled, crn), ratio(exact, crn)]
        rows.append([str(layer), *map(show, numbers)])
    return table(["layer", "LR, sampled", "LR, exact", "CRN", "LR / CRN, sampled", "LR / CRN, exact"], rows)


def _course(points: list[Point], of_lr: str, of_crn: str) -> list[str]:
    """Ratios of LR's kind of variance to CRN's kind, step by step."""
    layers = layers_of(points)
    rows = []
    for at in sorted(set(map(measurement, points))):
        pairs = [[number(points, *kind, layer, at) for kind in (("lr", of_lr), ("crn", of_crn))] for layer in layers]
        rows.append([f"{at.step:,}", f"{at.images:,}", *(show(ratio(lr, crn)) for lr, crn in pairs)])
    return table(["steps", "images", *(f"layer {layer}" for layer in layers)], rows, texts=0)
