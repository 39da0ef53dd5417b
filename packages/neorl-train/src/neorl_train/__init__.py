"""Compiled training, evaluation, verdicts, checkpoints and tracking."""
