"""A workload's times over its runs: series, change points and the page."""
