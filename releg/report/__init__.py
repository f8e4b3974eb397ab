"""One artefact per file: reads results/, writes results/."""
