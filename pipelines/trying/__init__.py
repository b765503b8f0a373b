"""Tries levers on a program: applies each, measures the gain, and compares the results."""
