"""The artefacts in results/: they belong together, and the README shows what they say."""

import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.command_line import verify
from lightning_modules.shipped_estimators import shipped_names
from lightning_modules.studies.recipe import LONG, SHORT
from releg.records.file_names import TRIALS
from releg.records.names import BUDGETS, PUBLISHED_BUDGET
from releg.report.bench import tabulated
from releg.report.figure1_data import at_shared_weights, from_csv, largest, layers_of, number
from releg.report.luck import by_luck, variance_over_seeds
from releg.report.readme import write_readme
from releg.report.recipe import BUDGET_RECIPE, best_recipes, tells_of_shapes
from releg.report.runs import Row, read_manifest
from releg.report.summary import summary
from releg.report.table1 import gap, longer_rows
from releg.report.tables import listed, power_of_ten
from releg.report.variance import ratio
from releg.report.writers import REPORTS
from releg.weights import digest, load
from tests.environment import ROOT
from tests.pages import PAGES, broken_links, section

RESULTS = ROOT / "results"
COMPARED = RESULTS / "compare.json"
FOLDERS = (".", "quick", "converged", "paper")  # the published table, and those of other budgets
OTHER_RUN = "results/ is not as committed, so the README does not describe it"
README = (ROOT / "README.md").read_text(encoding="utf-8")
FLAT = " ".join(README.split())  # where lines are broken does not matter
NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}
TEXTS = (".md", ".csv", ".json", ".tex")  # the bytes of a figure depend on the versions of what draws it


def skip_for_a_user(reason: str) -> None:
    """A user's own runs are no mistake; where a change is judged, they are."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@pytest.fixture
def as_committed() -> None:
    """Users who followed the README and trained have other results than it shows."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", "results"], cwd=ROOT, capture_output=True, text=True
    )
    if changed.returncode == 0 and changed.stdout:
        skip_for_a_user(OTHER_RUN)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The artefacts without the runs, as a clone has them."""
    shutil.copytree(RESULTS, tmp_path, ignore=shutil.ignore_patterns("runs", "*.safetensors"), dirs_exist_ok=True)
    return tmp_path


def read_rows() -> list[Row]:
    """The published Table 1."""
    rows: list[Row] = json.loads((RESULTS / "table1.json").read_text())
    return rows


@pytest.mark.parametrize("folder", FOLDERS)
def test_reports_made_again_from_the_clone_are_the_committed_ones(folder: str, copied: Path) -> None:
    results = copied / folder
    reports = [report for report in REPORTS if (results / next(iter(report.files))).is_file()]
    if folder in FOLDERS[:2] and REPORTS[0] not in reports:
        skip_for_a_user(f"no {folder}/table1.md was made")
    for report in reports:
        report.write(results)
    if reports:
        write_readme(results)
    for path in results.glob("*"):
        if path.suffix in TEXTS:
            assert path.read_text(encoding="utf-8") == (RESULTS / folder / path.name).read_text(encoding="utf-8"), path


@pytest.mark.usefixtures("as_committed")
def test_the_readme_shows_the_table_that_is_there() -> None:
    shown = re.search(r"<!-- python -m releg.report.summary -->\n(.*?)<!-- end -->", README, re.DOTALL)
    assert shown is not None
    assert shown[1] == summary(RESULTS)


@pytest.mark.usefixtures("as_committed")
@pytest.mark.parametrize("folder", FOLDERS[:2])
def test_common_random_numbers_beat_the_likelihood_ratio_wherever_both_were_trained(folder: str) -> None:
    rows = json.loads((RESULTS / folder / "table1.json").read_text())
    differences = gap(rows, "test_nll_mean")
    assert differences
    assert all(difference > 0 for difference in differences.values())


@pytest.mark.usefixtures("as_committed")
def test_common_random_numbers_reach_the_papers_bounds_except_where_the_readme_says_so() -> None:
    rows = [row for row in read_rows() if row["estimator"] == "crn"]
    missed = [f"SBN({row['architecture']})" for row in rows if row["difference"] > 0]
    assert len(missed) < len(rows)
    except_with = f", except with {' and '.join(missed)}" if missed else ""
    assert f"CRN reaches the paper's bounds in these steps{except_with}" in README


@pytest.mark.long
@pytest.mark.usefixtures("as_committed")
def test_the_published_weights_give_the_bounds_of_the_table() -> None:
    verdicts = verify.verify(RESULTS, 2, BinarizedMNIST())
    assert {str(verdict.cell): verdict.problem for verdict in verdicts if verdict.problem} == {}
    in_tables = [*read_rows(), *longer_rows(RESULTS)]
    assert sorted(v.table for v in verdicts if v.table) == sorted(row["test_nll_mean"] for row in in_tables)


@pytest.mark.usefixtures("as_committed")
def test_the_readme_says_which_differences_of_crn_to_the_paper_can_be_luck() -> None:
    (luck,) = re.findall(r"less than (\d\.\d) nats can be luck", (RESULTS / "table1.md").read_text())
    table = read_rows()
    crn = {f"SBN({row['architecture']})": row["difference"] for row in table if row["estimator"] == "crn"}
    below = [net for net, difference in crn.items() if difference <= -float(luck)]
    assert f"it is clearly below them with {' and '.join(below)}." in FLAT
    others = [difference for net, difference in crn.items() if net not in below]
    assert max(map(abs, others)) < float(luck)
    assert f"The other {NUMBERS[len(others)]} differences are smaller than {luck} nats, which can be the luck" in FLAT


@pytest.mark.usefixtures("as_committed")
def test_the_readme_says_what_longer_training_led_to() -> None:
    rows = [row for row in longer_rows(RESULTS) if row["estimator"] == "lr"]
    assert {row["steps"] for row in rows} == {1_000_000}
    assert all(row["difference"] < 0 for row in rows)
    assert f"goes below the paper's bounds, too, in all {NUMBERS[len(rows)]} nets." in FLAT
    table = read_rows()
    crn = {row["architecture"]: row["test_nll_mean"] for row in table if row["estimator"] == "crn"}
    ahead = {f"SBN({row['architecture']})": crn[row["architecture"]] - row["test_nll_mean"] for row in rows}
    (seeds,), (longer,) = ({len(row["seeds"]) for row in each} for each in (table, rows))
    luck = by_luck(variance_over_seeds(table), seeds, longer)
    level = [net for net, nats in ahead.items() if nats > -luck]
    assert all(ahead[net] < luck for net in level)
    assert f"It is then level with CRN after 200,000 with {listed(level)}." in FLAT
    assert f"Each cell of the table has {_seeds(seeds)}, each longer run {_seeds(longer)}." in FLAT
    ((net, ends),) = gap(longer_rows(RESULTS), "test_nll_mean").items()
    assert ends > by_luck(variance_over_seeds(table), longer, longer)
    paper = gap(table, "paper")[net]
    words = f"after 1,000,000 steps it is {ends:.2f} nats below LR with SBN({net}), where the paper has {paper:.2f}."
    assert f"CRN also ends lower, where it was trained for as long: {words}" in FLAT


@pytest.mark.usefixtures("as_committed")
def test_the_readme_says_how_far_the_papers_protocol_has_come() -> None:
    manifest = read_manifest(RESULTS / "paper")
    assert manifest.runs == []
    assert {run.net for run in manifest.unfinished} == {"32-64-128-256"}
    done = {run.estimator: run.result for run in manifest.unfinished}
    lr, crn = (f"{-done[name]['val/elbo']:.2f} for {name.upper()} after {done[name]['steps']:,}" for name in done)
    assert f"the validation bounds are {lr} steps and {crn} (" in FLAT


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{NUMBERS[count]} seeds"


@pytest.mark.usefixtures("as_committed")
def test_the_readme_says_what_bits_drawn_once_cost() -> None:
    (fixed,) = (e for e in json.loads((RESULTS / "recipe" / "trials.json").read_text()) if e["binarization"] == "fixed")
    (cell,) = (
        entry
        for entry in json.loads((RESULTS / "runs.json").read_text())["runs"]
        if (entry["config"]["model.layers"], entry["estimator"]) == ([200, 200], "crn")
        and entry["config"]["seed_everything"] == 0
    )
    lost = cell["result"]["val/elbo"] - fixed["val/elbo"]
    assert f"drawn once, CRN ends {lost:.1f} nats higher on the validation images, with SBN(200-200) and seed 0" in FLAT


@pytest.mark.usefixtures("as_committed")
def test_the_readme_says_which_recipes_did_better_in_trials() -> None:
    entries = [entry for entry in json.loads((RESULTS / TRIALS).read_text()) if tells_of_shapes(entry)]
    full = BUDGETS[PUBLISHED_BUDGET]
    trials = {steps: [entry for entry in entries if entry["steps"] == steps] for steps in (SHORT, LONG, full)}
    best = {steps: best_recipes(here) for steps, here in trials.items()}
    assert {shape for here in best.values() for _, shape in here.values()} == {"hold_then_linear"}
    assert {here["lr"][0] for here in best.values()} == {BUDGET_RECIPE[0]}
    shorter = {steps for steps, here in best.items() if here["crn"][0] > BUDGET_RECIPE[0]}
    assert shorter == {SHORT, LONG}
    words = "both did better at every length with a rate that is held for half of the steps, and CRN in shorter runs"
    assert f"{words} with a higher one, too." in FLAT
    runs = read_manifest(RESULTS).runs
    published = {run.estimator: run.result["val/elbo"] for run in runs if (run.net, run.seed) == ("200-200", 0)}
    tried = {name: [e["val/elbo"] for e in trials[full] if e["estimator"] == name] for name in published}
    lr, crn = (max(tried[name]) - published[name] for name in ("lr", "crn"))
    ends = f"end {lr:.1f} nats below the published run with LR and {crn:.1f} with CRN"
    assert f"After {full:,} steps, holding the rate, and no warm-up, {ends}" in FLAT


@pytest.mark.usefixtures("as_committed")
def test_the_readme_states_the_variances_that_were_measured() -> None:
    points = at_shared_weights(from_csv(RESULTS / "figure1.csv"))
    at = largest(points)
    lr, crn = ([number(points, name, "total", layer, at) for layer in layers_of(points)] for name in ("lr", "crn"))
    ratios = [ratio(top, bottom) for top, bottom in zip(lr, crn, strict=True)]
    powers = [math.floor(math.log10(value)) for value, _ in ratios]
    *most, last = (f"{v / 10**p:.1f} × {power_of_ten(p)}" for (v, _), p in zip(ratios, powers, strict=True))
    amount = f"After {at.step:,} steps, with 1,000 samples for each of {at.images:,} training images, "
    assert f"{amount}LR's sampled variance is {', '.join(most)} and {last} times that of CRN in layers 1 to 4." in FLAT
    above = [layer for layer, (value, _) in enumerate(ratios, start=1) if value > 1e8]
    assert above == [2, 3]
    assert all(value > 1e5 for value, _ in ratios)
    assert "layers 1 and 4 are in this range, layers 2 and 3 above it, but with standard errors as large" in FLAT
    assert all(0.9 < ratios[layer - 1][1] / ratios[layer - 1][0] < 1 for layer in above)
    assert max(error / value for value, error in crn) < 0.01
    assert "CRN's are known to within one percent" in FLAT


@pytest.mark.usefixtures("as_committed")
def test_the_readme_says_who_won_the_race() -> None:
    rows = json.loads((RESULTS / "quick" / "race.json").read_text())
    assert f"All {len(rows)} trained SBN(200-200) for {rows[0]['steps']:,} steps with one seed." in FLAT
    orders = []
    for bound in rows[0]["minutes_to"]:
        there = [(row["minutes_to"][bound], row["estimator"]) for row in rows if row["minutes_to"][bound] is not None]
        if there:
            orders.append([name for _, name in sorted(there)])
    *others, lowest = orders
    assert lowest == ["crn"]
    assert [order[:2] for order in others] == [["crn", "reinmax"]] * len(others)
    first = "CRN was the first at every bound, and the only one to reach the lowest; ReinMax (biased) was the second at"
    assert f"{first} the others" in FLAT


@pytest.mark.usefixtures("as_committed")
def test_the_readme_says_who_has_the_lowest_variance_for_its_cost() -> None:
    rows = json.loads(COMPARED.read_text())["rows"]
    price = {row["estimator"]: row["within"]["value"] * row["ms_per_step"] for row in rows}
    assert min(price, key=lambda name: price[name]) == "common_random_numbers"
    assert "At the same weights, CRN's variance times the cost of its step is the lowest" in FLAT


@pytest.mark.usefixtures("as_committed")
def test_the_readme_states_the_cost_that_was_measured() -> None:
    rows = json.loads((RESULTS / "bench.json").read_text())
    studies = json.loads((RESULTS / "bench_studies.json").read_text())
    ratios = [row["ratio_to_lr"] for row in tabulated(rows, studies) if row["estimator"] == "crn_cpu"]
    assert len(ratios) == 8  # four architectures, at initial and at trained weights
    assert f"costs {min(ratios):.2f} to {max(ratios):.2f} times one with LR" in README
    alone = [
        row["ratio_to_lr"]
        for row in rows
        if (row["threads"], row["via"]) == (1, "bare") and row["estimator"] == "crn_cpu"
    ]
    assert f"on two CPU threads and {min(alone):.2f} to {max(alone):.2f} times on one" in README
    minutes = {(row["architecture"], row["estimator"]): row["minutes"] for row in read_rows()}
    whole = [minutes[net, "crn"] / minutes[net, "lr"] for net, _ in minutes]
    words = f"Over a whole training of the table, on one thread, it was {min(whole):.1f} to {max(whole):.1f} times."
    assert words in FLAT
    both = [*ratios, *alone]
    assert f"at {min(both):.1f} to {max(both):.1f} times the cost of a likelihood-ratio step" in FLAT


@pytest.mark.usefixtures("as_committed")
def test_the_orderings_that_the_page_states_were_measured() -> None:
    rows = json.loads(COMPARED.read_text())["rows"]
    variance = {row["estimator"]: row["within"] for row in rows}

    def lead(less: str, more: str) -> float:
        """By how many standard errors one has less variance than the other."""
        one, other = variance[less], variance[more]
        return (other["value"] - one["value"]) / math.hypot(one["standard_error"], other["standard_error"])

    clear = [("arms", "disarm"), ("disarm", "arm"), ("disarm", "leave_one_out")]
    clear += [("rebar", "likelihood_ratio"), ("relax", "likelihood_ratio")]
    clear += [("common_random_numbers", name) for name in variance if name != "common_random_numbers"]
    assert {pair: lead(*pair) for pair in clear if not lead(*pair) > 2} == {}
    for pair in (("rodeo", "double_control"), ("double_control", "leave_one_out")):
        assert 0 < lead(*pair) < 2
    text = " ".join(section("releg", "The estimators").split())
    assert "RODEO, double control variates and RLOO come in this order, each about one standard error" in text
    reached = json.loads((RESULTS / "quick" / "extended.json").read_text())
    assert reached[0]["estimator"] == "crn"


@pytest.mark.usefixtures("as_committed")
def test_the_library_s_page_states_the_ratios_that_were_measured() -> None:
    variance = {row["estimator"]: row["within"]["value"] for row in json.loads(COMPARED.read_text())["rows"]}
    page = (ROOT / "releg" / "README.md").read_text(encoding="utf-8")
    for words, name in (
        ("`gradient`, `functional.common_random_numbers`", "common_random_numbers"),
        ("the same with `flips=k`", "pruned"),
        ("`functional.disarm`", "disarm"),
        ("`functional.arms`", "arms"),
        ("`functional.leave_one_out`", "leave_one_out"),
        ("`CommonRandomNumbers`", "common_random_numbers"),
        ("`functional.reinmax`", "reinmax"),
    ):
        ratio = float(f"{variance['likelihood_ratio'] / variance[name]:.2g}")
        assert f"| {words} | {ratio:g} " in page


@pytest.mark.usefixtures("as_committed")
def test_estimators_were_compared_at_the_weights_that_are_published() -> None:
    compared = json.loads(COMPARED.read_text())
    (path,) = re.findall(r"--ckpt results/(\S+)", compared["command"])
    assert compared["weights_sha256"] == digest(load(RESULTS / path).state_dict(), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_files_that_a_page_links_to_are_there(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_files_of_the_project_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`((?:releg|lightning_modules|tests)/[\w./]*)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_readme_names_every_shipped_estimator() -> None:
    named = re.findall(r"`([a-z_]+)`(?=[^|]*\|[^|]*\|$)", section("releg", "The estimators"), re.MULTILINE)
    assert sorted(named) == shipped_names()


def test_the_citation_names_the_version_of_the_project() -> None:
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
