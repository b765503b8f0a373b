"""Renderers: a finished view-model in, text out; no queries and no arithmetic on metrics."""
