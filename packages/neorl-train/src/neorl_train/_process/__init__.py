"""The process around a run."""
