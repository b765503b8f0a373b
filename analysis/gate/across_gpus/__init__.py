"""The same work on two GPU models: the speedup against what their rooflines allow."""
