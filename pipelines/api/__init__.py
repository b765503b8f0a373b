"""The Python interface: profiles functions, and shows results in notebooks."""
