import json
from pathlib import Path
from typing import Any

import pytest

from releg.records.file_names import BENCH
from releg.report.bench import exponent, write_bench

MS = {"floor": 2.0, "jax": 3.0, "eager": 7.0, "compiled": 3.5, "trainer": 3.7}


def steps(name: str, slower: float) -> list[dict[str, Any]]:
    return [
        {"architecture": "200-200", "weights": "trained", "threads": 1, "estimator": name, "way": way}
        | {"ms": [slower * ms, 1.0, 9.0], "ratio_to": {"floor": [ms / 2, 1, 3], "jax": [slower * ms / 3, 1, 3]}}
        | ({"ratio_to": {"bare": [ms / 3.5, 1.01, 1.07]}} if way == "trainer" else {})
        for way, ms in MS.items()
    ]


def document() -> dict[str, Any]:
    run = {"commit": "0123abcd", "processor": "some processor", "cores": 2, "command": ["releg", "bench"]}
    growth = [
        {"study": study, "units": 200, "depth": 2, "estimator": name, study: size}
        | {"ms": [size**power, 0.9 * size**power, 1.2 * size**power], "ratio_to": {"lr": [1.5, 1.4, 1.6]}}
        for study, sizes in (("units", (50, 100, 800)), ("depth", (1, 2, 4)))
        for size in sizes
        for name, power in (("lr", 0.5), ("crn", 0.75))
    ]
    breaks = [{"estimator": "pruned", "label": "Pruned CRN", "graphs": 3, "breaks": ["nonzero", "item"]}]
    rows = [*steps("lr", 1.0), *steps("crn", 2.0)]
    return {"run": run, "steps": rows, "growth": growth, "graph_breaks": breaks}


def write(folder: Path, content: dict[str, Any]) -> str:
    (folder / BENCH).write_text(json.dumps(content))
    return write_bench(folder)[0].read_text()


def test_the_page_leads_with_floor_jax_and_ours_and_shows_what_made_it(tmp_path: Path) -> None:
    text = write(tmp_path, document())
    assert "| 200-200 | trained | 1 | LR | 2.00 | 3.00 | 7.00 | 3.50 | 3.70 |" in text
    assert "| 200-200 | trained | 1 | CRN | 4.00 | 6.00 | 14.00 | 7.00 | 7.40 |" in text
    assert "| CRN | 1.75 (1.00 to 3.00) | 2.33 (1.00 to 3.00) |  | 1.06 (1.01 to 1.07) |" in text
    assert "| 800 | 2 | CRN | 150.4 | 1.50 |" in text
    assert "| Pruned CRN | 3 | `nonzero`, `item` |" in text
    assert "commit: 0123abcd" in text
    assert "some processor, 2 cores" in text
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_without_compiler_jax_and_growth_the_page_has_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "bench.png").write_text("of another benchmark")
    content = document() | {"growth": []}
    content["steps"] = [row for row in content["steps"] if row["way"] in ("floor", "eager", "trainer")]
    text = write(tmp_path, content)
    assert "| 200-200 | trained | 1 | LR | 2.00 |  | 7.00 |  | 3.70 |" in text
    assert "| LR | 3.50 (1.00 to 3.00) |" in text  # ours is the eager step then
    assert "Growth" not in text
    assert not (tmp_path / "bench.png").exists()


def test_the_fitted_exponent_is_that_of_a_power_law() -> None:
    rows = [{"units": n, "ms": [7 * n**1.25, 0, 0]} for n in (50, 100, 800)]
    assert exponent(rows, "units") == pytest.approx(1.25)
