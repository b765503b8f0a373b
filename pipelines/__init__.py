"""Commands and profiler launchers; the only package that starts processes."""
