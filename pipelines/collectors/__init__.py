"""Collectors: each launches the program once and returns report files.

Timing, nsys, ncu and torch.profiler never share a launch, so they do not disturb each other.
"""
