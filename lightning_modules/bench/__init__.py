"""What `releg bench` and `releg compare` measure, one question per file; reports turn the numbers into pages."""
