"""What is measured at fixed weights."""
