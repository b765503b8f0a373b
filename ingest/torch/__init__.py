"""Traces of torch.profiler (Kineto)."""
