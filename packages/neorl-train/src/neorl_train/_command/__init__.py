"""The command ``neorl-train``."""
