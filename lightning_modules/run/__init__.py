"""One run: its settings, identity, folder, checkpoints, csv files and callbacks."""
