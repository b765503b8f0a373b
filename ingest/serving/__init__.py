"""Readers of load generators: requests to a server, and when they were answered."""
