"""Batches: workloads whose configurations run as Slurm jobs; their state is kept on disk."""
