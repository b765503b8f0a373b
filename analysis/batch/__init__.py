"""What a batch shows: summaries of its tasks, its nodes compared, and its page."""
