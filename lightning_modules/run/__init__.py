"""One run: its folder, checkpoints, tables and callbacks."""
