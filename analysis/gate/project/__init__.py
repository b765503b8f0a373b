"""What a run would take on another GPU: readings, scaling, totals and the page."""
