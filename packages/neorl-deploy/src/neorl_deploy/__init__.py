"""The policy bundle and its runtime."""
