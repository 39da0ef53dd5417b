"""Handles the process of a run: devices, signals, progress and timings."""
