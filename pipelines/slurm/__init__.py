"""Slurm: the options of a job, its script, and the commands that submit and monitor it."""
