"""Trials of levers: the time of a launch, the verdict on a gain, the comparison of results."""
