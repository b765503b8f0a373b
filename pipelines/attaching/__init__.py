"""Looks at a program that already runs, without stopping it.

Each way to look has its own file.  Timelines record GPU work, and the program must have been
prepared for them when it was started: `nsys_session.py`, `kineto.py`, `kineto_signal.py`.  Samplers
need no preparation: `stacks.py`, `counters.py`.
"""
