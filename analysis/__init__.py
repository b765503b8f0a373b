"""Parquet in, findings out: SQL views over the store, and the view-model of a report."""
