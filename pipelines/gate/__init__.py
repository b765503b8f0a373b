"""Compares runs and decides: sides by name, baselines, and results for other tools."""
