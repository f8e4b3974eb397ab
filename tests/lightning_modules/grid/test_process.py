"""What a process that ended left behind."""

from pathlib import Path

from lightning_modules.grid.process import LOG, last_words


def test_the_sentence_of_a_run_stands_for_it_or_else_its_last_line_and_its_log(tmp_path: Path) -> None:
    assert last_words(tmp_path, -9) == "was ended by signal 9"
    log = tmp_path / LOG
    log.write_text("--- a run\nstep 1\nreleg: out of memory\na thread failed\n")
    assert last_words(tmp_path, 2) == "out of memory"
    with log.open("a") as file:
        file.write("--- the same run again\nstep 1\nSegmentation fault\n")
    assert last_words(tmp_path, -11) == f"was ended by signal 11: Segmentation fault (full log: {log})"
