"""The page of a batch: summaries of its tasks, and the comparison of its nodes."""
