"""How long the grid will take."""

from lightning_modules.grid.estimate import Cost, left_together


def test_time_left_is_the_sum_over_runs_divided_by_jobs_but_no_less_than_the_longest() -> None:
    assert left_together([10.0, 20.0, 30.0], 1) == 60.0
    assert left_together([10.0, 20.0, 30.0], 2) == 30.0
    assert left_together([1.0, 1.0, 30.0], 3) == 30.0
    assert left_together([], 1) == 0.0


def test_a_continued_run_costs_only_what_is_left() -> None:
    cost = Cost(start=5.0, step=0.1, rest=10.0, steps=100)
    assert cost.total() == 25.0
    assert cost.total(50) == 15.0
    assert cost.left(100) == 0.0
