"""What a person runs: commands, profiler launchers, and the only place that starts processes."""
