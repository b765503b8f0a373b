"""Readers of what is recorded of a job that hangs: flight recorder dumps, NCCL RAS."""
