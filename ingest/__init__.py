"""Readers, which convert a profiler's report into Parquet tables."""
