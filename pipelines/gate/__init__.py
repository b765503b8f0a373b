"""Compares runs and decides: sides by name, baselines, and results that other tools read."""
