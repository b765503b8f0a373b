"""The judge of kernels: a candidate runs apart from inputs, reference results and clock.

The judging process (`judge`) is trusted: it makes inputs, holds the expected results, and has the
clock.  A candidate runs in its own process (`inside`), forked by a third one (`fork_server`)
that has loaded PyTorch and runs nothing of a candidate.  They share a block of memory (`arena`)
and a socket, and nothing else.
"""
