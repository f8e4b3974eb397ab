from releg.without_gpu.instructions import Code, count


def test_instructions_are_counted_on_the_shortest_way_through_a_loop() -> None:
    """Two before the loop, one after it; inside, four if the branch is taken and six if not."""
    code = ["A", "A", ".L_x_0:", "A", "@P0 BRA `(.L_x_1)", "A", "A", ".L_x_1:", "A", "BRA `(.L_x_0)", "EXIT"]
    assert count(code) == Code(outside=3, rounds=(4,))
