"""Servers under load: start, load, capture a window, end."""
