"""What things are called: estimators, architectures, budgets, files and columns. Runs and reports share it."""
