"""One report per file, listed in writers.py. Reports read results/ and write results/."""
