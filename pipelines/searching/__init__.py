"""Drives generations of candidates for a kernel problem, and confirms what the best of them gain.

A proposer (an agent's command, a person, or a search over parameters) writes candidates; the judge
of `pipelines/evaluate` checks and times them; the records are in searches/ of the store.
"""
