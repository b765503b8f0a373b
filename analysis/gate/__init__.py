"""The gate: whether a change is an improvement or a regression, how sure that is, what to do."""
