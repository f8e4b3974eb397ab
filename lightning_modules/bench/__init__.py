"""What `releg bench` measures, one question per file; releg.report.bench turns the numbers into tables and a plot."""
