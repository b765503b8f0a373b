"""Workloads that come with perfpipe: YAML files, the programs they launch, and recordings."""
