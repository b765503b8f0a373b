"""The critical path of a step: what each of its nanoseconds waited for."""
