"""Readers: bytes of a profiler's report in, Parquet tables out."""
