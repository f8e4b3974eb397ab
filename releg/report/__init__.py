"""One artefact per file. Reports read results/ and write results/."""
