"""Nsight Systems exports: SQLite, parquetdir and arrowdir."""
