"""Figure 1, the ratios behind it and results/README.md from made-up curves."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from releg.records.csv_formats import VARIANCE_COLUMNS, read_variances
from releg.records.file_names import METRICS, RESULT
from releg.records.names import ESTIMATORS
from releg.report.all import write_all
from releg.report.figure1 import draw, panel_notes, write_figure1
from releg.report.figure1_data import (
    Measurement,
    Point,
    all_points,
    amount,
    as_csv,
    at_shared_weights,
    from_csv,
    gather,
    largest,
    measurement_file,
    number,
)
from releg.report.runs import digest_of_run, read_manifest
from releg.report.variance import against_paper, ratio, show, write_variance
from tests.releg.report.synthetic import entry, write_curves, write_results

ARCHITECTURE = "32-64-128-256"


def results_with_curves(folder: Path, seeds: int = 1, steps: int = 10_000) -> Path:
    runs = [entry(ARCHITECTURE, name, seed, 100.0, steps) for name in ("lr", "crn") for seed in range(seeds)]
    write_results(folder, [*runs, entry("200-200", "lr", 0, 112.0, steps)])
    for run in runs:
        write_curves(folder, run)
    return folder


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return results_with_curves(tmp_path)


def gather_from(results: Path) -> list[Point]:
    return gather(read_manifest(results).runs)


def test_the_data_behind_the_figure_survive_their_file(results: Path) -> None:
    write_figure1(results)
    points = gather_from(results)
    assert len(points) == 2 * 20 + 7 * 4 * (3 + 3) + 7 * 4 * 3
    assert from_csv(results / "figure1.csv") == points


def test_the_same_numbers_make_the_same_files(results: Path) -> None:
    paths = write_figure1(results)
    before = [path.read_bytes() for path in paths]
    write_figure1(results)
    assert [path.read_bytes() for path in paths] == before


def test_a_clone_without_the_runs_draws_the_figure_from_its_csv(results: Path) -> None:
    paths = write_figure1(results)
    before = [path.read_bytes() for path in paths]
    (results / "runs").rename(results / "elsewhere")
    assert [path.read_bytes() for path in write_figure1(results)] == before


def test_the_curve_of_a_run_that_was_trained_elsewhere_stays(results: Path) -> None:
    before = all_points(results)
    (results / "figure1.csv").write_text(as_csv(before))
    shutil.rmtree(next(run.folder for run in read_manifest(results).runs if run.estimator == "lr"))
    assert set(all_points(results)) == set(before)


def test_a_folder_that_another_run_got_in_the_meantime_is_not_read(results: Path) -> None:
    before = all_points(results)
    (results / "figure1.csv").write_text(as_csv(before))
    folder = next(run.folder for run in read_manifest(results).runs if run.estimator == "lr")
    (folder / RESULT).write_text("{}")
    (folder / METRICS).unlink()
    assert set(all_points(results)) == set(before)


def test_without_a_run_of_the_architecture_no_old_figure_stays(results: Path) -> None:
    write_all(results)
    assert (results / "figure1.png").is_file()
    write_results(results, [entry("200-200", "lr", 0, 112.0)])
    write_all(results)
    assert not [path for path in results.iterdir() if path.name.startswith(("figure1", "variance"))]
    assert "figure1" not in (results / "README.md").read_text()


def visible_texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]


@pytest.mark.parametrize("recipes", [1, 2])
@pytest.mark.parametrize(("seeds", "steps"), [(1, 200), (1, 10_000), (3, 200_000), (1, 2_000_000)])
def test_no_text_overlaps_another_or_leaves_the_picture(tmp_path: Path, seeds: int, steps: int, recipes: int) -> None:
    points = gather_from(results_with_curves(tmp_path, seeds, steps))
    points = [p._replace(num_images=50_000) if p.layer is not None and p.step == steps else p for p in points]
    warm = "RMSprop at 0.003, falling linearly to zero, with a warm-up over the first 20,000 steps"
    note = f"SBN(32-64-128-256). Budget quick: 10,000 steps per run, {' and '.join([warm] * recipes)}; not converged: "
    note += "the authors' later code trains for 2,000,000 steps."
    figure = draw(points, "\n".join([note, *panel_notes(points)]))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    width, height = figure.get_size_inches() * figure.dpi
    inside = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    hidden = {id(t) for axis in inside for tick in axis.get_major_ticks() for t in (tick.label1, tick.label2)} - {
        id(tick.label1)
        for axis in inside
        for tick in axis.get_major_ticks()
        if min(*axis.get_view_interval()) <= tick.get_loc() <= max(*axis.get_view_interval())
    }
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in visible_texts(figure) if id(t) not in hidden]
    assert len(boxes) > 25
    for position, (text, box) in enumerate(boxes):
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
        for other, other_box in boxes[:position]:
            assert not box.overlaps(other_box), (text, other)


def test_the_first_steps_do_not_squeeze_the_curves(results: Path) -> None:
    bounds = [point for point in all_points(results) if point.quantity == "val_elbo"]
    first = min(point.step for point in bounds)
    last = max(point.step for point in bounds)
    early = [p._replace(step=max(1, last // 100), value=-1000.0) for p in bounds if p.step == first]
    left, right = draw([*bounds, *early], "").axes
    lowest = min(point.value for point in bounds if point.step >= 0.05 * last)
    for axes in (left, right):
        assert lowest - 5 < axes.get_ylim()[0] < lowest


def test_the_figure_shows_the_total_variance_of_both_estimators_at_the_weights_of_one_run(results: Path) -> None:
    points = gather_from(results)
    lr, crn = (draw(points, "").axes[1].get_lines()[first] for first in (0, 4))  # layer 1
    for line, estimator in ((lr, "lr"), (crn, "crn")):
        key = ("total", "lr", estimator, 1)
        shown = [p.value for p in points if (p.quantity, p.trained_with, p.estimator, p.layer) == key]
        assert np.asarray(line.get_ydata()) == pytest.approx(shown)


def test_values_from_more_images_are_not_joined_to_the_others(results: Path) -> None:
    points = [
        p._replace(num_images=50_000) if p.layer is not None and p.step == 10_000 else p for p in gather_from(results)
    ]
    _, curves, _, strip = (axes.get_lines() for axes in draw(points, "").axes)
    for lines, length in ((curves, 6), (strip, 1)):
        assert [len(np.asarray(line.get_xdata())) for line in lines] == [length] * 8  # two estimators, four layers


def measure_at_the_end(results: Path, seed: int, step: int) -> None:
    """Measure the LR run of this seed on all images, at an earlier step than its last."""
    manifest = json.loads((results / "runs.json").read_text())
    (run,) = (each for each in manifest["runs"] if each["folder"].endswith(f"{ARCHITECTURE}lr{seed}"))
    rows = read_variances(results / run["folder"] / "grad_variance.csv")
    new = {"step": str(step), "num_images": "50000"}
    last = [",".join((row | new).values()) for row in rows if row["step"] == "10000"]
    path = measurement_file(results, "lr")
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([",".join(VARIANCE_COLUMNS), *last]) + "\n")
    made = {"commit": "beef", "processor": "A CPU", "cores": 3, "run": digest_of_run(run["config"], run["result"])}
    path.with_suffix(".json").write_text(json.dumps(made))


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_page_is_about_the_measurement_on_most_images_although_a_run_was_measured_later(
    tmp_path: Path, seeds: int
) -> None:
    results = results_with_curves(tmp_path, seeds)
    measure_at_the_end(results, seed=seeds - 1, step=9_500)
    write_figure1(results)
    (page,) = write_variance(results)
    text = page.read_text()
    shared = at_shared_weights(all_points(results))
    assert largest(shared) == Measurement(9_500, 50_000)
    assert amount(shared) == (
        "1,000 samples for each of 100 training images, and of 50,000 at the best validation (step 9,500)"
    )
    assert "## After 9,500 steps: total" in text
    assert "## After 9,500 steps: within an image" in text
    assert "The 50,000 images after 9,500 steps were measured at commit beef on A CPU, 3 cores." in text
    rows = [line.split(" | ")[:2] for line in text.splitlines() if line.startswith(("| 9,500", "| 10,000"))]
    assert rows == [["| 9,500", "50,000"], ["| 10,000", "100"]] * 2  # in both tables of the course


def test_the_measurement_at_the_end_of_a_run_stays_with_that_run_however_many_seeds_there_are(tmp_path: Path) -> None:
    results = results_with_curves(tmp_path, seeds=2)
    before = all_points(results)
    measure_at_the_end(results, seed=1, step=10_000)
    for _ in range(2):  # the second time figure1.csv has them already
        points = all_points(results)
        new = [point for point in points if point not in before]
        assert len(points) == len(before) + len(new)
        assert {(point.seed, point.step, point.num_images) for point in new} == {(1, 10_000, 50_000)}
        (largest_lr,) = (p for p in new if (p.quantity, p.estimator, p.layer) == ("total", "lr", 1))
        shown, _ = number(at_shared_weights(points), "lr", "total", 1, Measurement(10_000, 50_000))
        assert shown == largest_lr.value, "not mixed with fewer images"
        (results / "figure1.csv").write_text(as_csv(points))
        shutil.rmtree(results / "runs", ignore_errors=True)


def test_the_measurement_of_a_run_that_was_trained_again_is_left_out(tmp_path: Path) -> None:
    results = results_with_curves(tmp_path)
    before = all_points(results)
    measure_at_the_end(results, seed=0, step=9_500)
    manifest = json.loads((results / "runs.json").read_text())
    for run in manifest["runs"]:
        run["result"]["training_seconds"] += 1
        if (results / run["folder"]).is_dir():
            (results / run["folder"] / RESULT).write_text(json.dumps(run["result"]))
    (results / "runs.json").write_text(json.dumps(manifest))
    assert all_points(results) == before
    write_figure1(results)
    assert "were measured at commit" not in write_variance(results)[0].read_text()


@pytest.mark.parametrize(("measured", "shown"), [(None, 0), (1, 1)])
def test_variances_are_compared_at_the_weights_of_one_run(tmp_path: Path, measured: int | None, shown: int) -> None:
    """The one that was measured on most images, or else the first: a mean over runs would lack its standard error."""
    results = results_with_curves(tmp_path, seeds=2)
    if measured is not None:
        measure_at_the_end(results, measured, 9_500)
    points = all_points(results)
    assert {(point.trained_with, point.seed) for point in at_shared_weights(points)} == {("lr", shown)}
    note = panel_notes(points)
    assert note[0].startswith("(a), (c) Means over 2 seeds; the bands reach from the lowest to the highest: ")
    fewer = [point for point in points if (point.trained_with, point.seed) != ("crn", 1)]
    assert panel_notes(fewer)[0].startswith("(a), (c) Means over up to 2 seeds; ")
    assert note[1].startswith(f"(b) Both at the weights of the LR run with seed {shown}: ")
    write_figure1(results)
    assert f"at the weights of the LR run with seed {shown},\n" in write_variance(results)[0].read_text()


def test_the_note_says_how_wide_the_bands_are_after_half_of_the_steps(tmp_path: Path) -> None:
    points = [point for point in all_points(results_with_curves(tmp_path, seeds=2)) if point.quantity == "val_elbo"]
    half = max(point.step for point in points) / 2
    flat = [point._replace(value=-100.0) for point in points]
    late = next(point for point in flat if point.step >= half)
    early = next(point for point in flat if point.step < half)
    apart = [late._replace(value=-97.5), early._replace(value=-50.0), *(p for p in flat if p not in (late, early))]
    assert "after half of the steps they are at most 0.0 nats wide." in panel_notes(flat)[0]
    assert "after half of the steps they are at most 2.5 nats wide." in panel_notes(apart)[0]


def test_the_page_has_the_ratios_of_each_seed_where_all_were_measured(tmp_path: Path) -> None:
    results = results_with_curves(tmp_path, seeds=2)
    measure_at_the_end(results, seed=0, step=10_000)
    write_figure1(results)
    *_, seeds = write_variance(results)[0].read_text().split("## At the weights of each LR run")
    assert "After 10,000 steps, on 100 images." in seeds
    points = [p for p in all_points(results) if p.trained_with == "lr"]
    for seed in (0, 1):
        here = [point for point in points if point.seed == seed]
        lr, crn = (number(here, name, "total", 1, Measurement(10_000, 100)) for name in ("lr", "crn"))
        assert f"| {seed} | {show(ratio(lr, crn))} |" in seeds


def test_one_seed_is_not_compared_with_others(results: Path) -> None:
    write_figure1(results)
    assert "of each LR run" not in write_variance(results)[0].read_text()


def test_the_amount_names_the_step_that_has_more_images(results: Path) -> None:
    points = at_shared_weights(gather_from(results))
    assert amount(points) == "1,000 samples for each of 100 training images"
    fewer = [p._replace(samples_per_image=500) if p.step == 10 else p for p in points]
    assert amount(fewer) == "500 samples for each of 100 training images, and 1,000 for each of 100"


def with_more_images(points: list[Point], step: int, error: float = 0.5) -> list[Point]:
    """A measurement on more images at the given step, with this relative error."""
    more = [p for p in points if p.layer is not None and p.step == 10_000]
    return points + [p._replace(step=step, num_images=50_000, standard_error=error * p.value) for p in more]


@pytest.mark.parametrize("error", [0.5, 1.5])  # the bar of the second begins below zero
def test_the_points_on_most_images_stand_apart_by_layer_with_standard_errors(results: Path, error: float) -> None:
    points = gather_from(results)
    _, alone, _ = draw(points, "").axes
    assert not alone.collections
    _, axes, _, strip = draw(with_more_images(points, 9_500, error), "").axes
    assert not axes.collections
    bars = [bar for each in strip.collections if isinstance(each, LineCollection) for bar in each.get_segments()]
    assert [bar[0][0] for bar in bars] == [1, 2, 3, 4] * 2  # two estimators
    (value,) = np.asarray(strip.get_lines()[0].get_ydata())  # LR, layer 1
    assert bars[0][:, 1] == pytest.approx([(1 - error) * value, (1 + error) * value])
    assert strip.get_ylim() == axes.get_ylim()
    assert axes.get_ylim()[0] > 0.1 * alone.get_ylim()[0]
    assert (alone.get_title(), axes.get_title(), strip.get_title()) == ("", "100 images", "50k images")


def test_the_note_explains_the_narrow_part_and_the_clocks(results: Path) -> None:
    points = gather_from(results)
    assert "narrow" not in "".join(panel_notes(points))
    variances, clocks = panel_notes(with_more_images(points, 9_500))
    assert variances.endswith(
        "of 50,000 at the best validation (step 9,500): the narrow part, by layer, with standard errors."
    )
    assert "slower if the machine had other work" in clocks


def test_the_note_names_an_estimator_that_was_not_trained(results: Path) -> None:
    points = gather_from(results)
    assert "not trained" not in "".join(panel_notes(points))
    of_lr = [point for point in points if point.trained_with == "lr"]
    assert panel_notes(of_lr)[0] == "(a), (c) CRN was not trained with this budget."


def test_a_seed_that_has_not_come_as_far_is_a_line_of_its_own(tmp_path: Path) -> None:
    """In a mean, the clock would run backwards where a slow seed ends."""
    points = gather_from(results_with_curves(tmp_path, seeds=3))
    slow = [
        p._replace(seconds=3 * (p.seconds or 0.0)) if (p.trained_with, p.seed) == ("crn", 2) else p
        for p in points
        if (p.trained_with, p.seed) != ("crn", 2) or p.step <= 5_000
    ]
    for axes in (draw(slow, "").axes[place] for place in (0, 2)):
        of_crn = [line for line in axes.get_lines() if line.get_color() == ESTIMATORS["crn"].colour]
        assert sorted(len(np.asarray(line.get_xdata())) for line in of_crn) == [10, 20]
        assert all((np.diff(np.asarray(line.get_xdata(), float)) > 0).all() for line in of_crn)


def test_without_variances_there_is_no_empty_panel(results: Path) -> None:
    points = [point for point in gather_from(results) if point.layer is None]
    figure = draw(points, "")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["(a)", "(b)"]
    assert all(axes.get_lines() for axes in figure.axes)
    assert panel_notes(points)[-1].startswith("(b) Not in the paper: ")


def test_the_legend_has_only_what_the_figure_shows(results: Path) -> None:
    points = [point for point in gather_from(results) if point.layer is None and point.trained_with == "lr"]
    (legend,) = draw(points, "").legends
    assert [text.get_text() for text in legend.get_texts()] == ["LR"]


def test_open_markers_are_in_front_of_filled_ones(results: Path) -> None:
    for axes in draw(gather_from(results), "").axes:
        lr, crn = (
            [line for line in axes.get_lines() if (line.get_markerfacecolor() == "white") == is_lr]
            for is_lr in (True, False)
        )
        assert min(line.get_zorder() for line in lr) > max(line.get_zorder() for line in crn)


def grey(colour: Any) -> float:
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_estimators_and_layers_can_be_told_apart_in_grey(results: Path) -> None:
    lines = draw(gather_from(results), "").axes[1].get_lines()
    assert len(lines) == 8
    lr, crn = lines[:4], lines[4:]
    assert len({(line.get_linestyle(), str(line.get_marker())) for line in lr}) == 4
    assert abs(grey(lr[0].get_color()) - grey(crn[0].get_color())) > 0.2
    assert {line.get_markerfacecolor() for line in lr} == {"white"}
    assert "white" not in {line.get_markerfacecolor() for line in crn}


def test_damaged_lines_of_a_run_are_left_out(results: Path) -> None:
    run = read_manifest(results).runs[0]
    before = len(gather_from(results))
    with (run.folder / "metrics.csv").open("a") as file:
        file.write("12000,1.0,val/elbo,nan\n13000,2.0,val/el")
    with (run.folder / "grad_variance.csv").open("ab") as file:
        file.write(b"10,likelihood_ratio,one,within,3.0,0.1,100,1000\n\xff\x00,")
    assert len(gather_from(results)) == before


def test_a_flipped_bit_anywhere_costs_no_more_than_its_line(results: Path) -> None:
    run = read_manifest(results).runs[0]
    before = len(gather_from(results))
    for name in ("metrics.csv", "grad_variance.csv"):
        whole = (run.folder / name).read_bytes()
        chance = random.Random(name)
        for position in [*range(20), *(chance.randrange(len(whole)) for _ in range(60))]:  # the header, and others
            damaged = bytearray(whole)
            damaged[position] ^= 1 << chance.randrange(8)
            (run.folder / name).write_bytes(damaged)
            assert before - 2 <= len(gather_from(results)) <= before  # two lines if it was the end of one
        (run.folder / name).write_bytes(whole.replace(b"2", b'"'))  # a quote would swallow the rest of the file
        gather_from(results)
        (run.folder / name).write_bytes(whole)


def test_the_ratio_is_taken_at_the_weights_of_the_lr_run(results: Path) -> None:
    write_figure1(results)
    (path,) = write_variance(results)
    points = [point for point in from_csv(results / "figure1.csv") if point.trained_with == "lr"]
    top, bottom = (number(points, name, "total", 2, Measurement(10_000, 100)) for name in ("lr", "crn"))
    value, error = ratio(top, bottom)
    assert value == pytest.approx(1000.0 * 2 * 10_000 * 1.1 / 1.5)
    assert error == pytest.approx(value * 0.02**0.5)
    text = path.read_text()
    assert "at the weights of the LR run" in text
    assert "(1.47 ± 0.21) × 10⁷" in text
    assert "(2.00 ± 0.28) × 10⁷" in text  # within an image
    assert "(6.00 ± 0.85) × 10⁷" in text  # the exact one is three times the sampled one
    assert "not converged" in text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (9e4, 1e3, "below"),
        (9e4, 6e3, "below, but within two standard errors of the limit"),
        (1.1e5, 6e3, "yes, but within two standard errors of the limit"),
        (1e7, 1e6, "yes"),
        (0.9e8, 0.06e8, "yes, but within two standard errors of the limit"),
        (5.3e8, 5.2e8, "above, but within two standard errors of the limit"),
        (5.3e8, 2e8, "above"),
        (float("nan"), float("nan"), "–"),
    ],
)
def test_the_page_says_whether_a_ratio_lies_in_the_papers_range(value: float, error: float, text: str) -> None:
    assert against_paper((value, error)) == text


def test_the_total_of_each_layer_is_compared_with_the_paper(results: Path) -> None:
    write_figure1(results)
    text = write_variance(results)[0].read_text()
    assert "| (1.47 ± 0.21) × 10⁷ | yes |" in text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ((153.2, 31.4), "153 ± 31"),
        ((52_100.0, 6_240.0), "(5.21 ± 0.62) × 10⁴"),
        ((1.6449, 0.081), "1.645 ± 0.081"),
        ((0.0, 0.0), "0.00"),
        ((2.5e-7, float("nan")), "(2.50) × 10⁻⁷"),
        ((float("nan"), float("nan")), "–"),
    ],
)
def test_numbers_are_shown_with_two_digits_of_their_error(number: tuple[float, float], text: str) -> None:
    assert show(number) == text


def test_the_readme_says_how_the_files_were_made(results: Path) -> None:
    write_all(results)
    text = (results / "README.md").read_text()
    for part in ("`bash reproduce.sh`", "c0ffee", "A CPU, 2 cores", "3.11.7", "torch 2.15.0", "Budget quick", "abcd"):
        assert part in text
    files = [path.name for path in results.iterdir() if path.name not in ("runs", "README.md")]
    assert all(Path(name).stem in text for name in files)
