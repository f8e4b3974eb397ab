"""What `releg bench`, `compare` and `variance` measure, one question per file; reports turn the numbers into pages."""
