"""Readers of the snapshots of PyTorch's CUDA caching allocator."""
