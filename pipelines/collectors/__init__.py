"""Collectors: each launches the program once more and gives report files.

Timing, nsys, ncu and torch.profiler never share a launch, so that none distorts another.
"""
