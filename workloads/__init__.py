"""Example workloads: YAML files, the programs they launch, and recordings."""
