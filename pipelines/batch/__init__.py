"""Batches: workloads whose configurations run as jobs of Slurm; the truth about them is on disk."""
