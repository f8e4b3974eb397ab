"""Binarised MNIST, from its archives to batches."""
