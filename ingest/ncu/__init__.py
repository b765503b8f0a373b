"""Nsight Compute reports: .ncu-rep and CSV."""
