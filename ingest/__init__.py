"""Readers: a profiler's report in, Parquet tables out."""
