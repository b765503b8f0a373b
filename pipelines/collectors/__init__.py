"""Collectors: each launches the program once and returns report files.

Timing, nsys, ncu and torch.profiler never share a launch, so that none distorts another.
"""
