"""Measurements at fixed weights."""
