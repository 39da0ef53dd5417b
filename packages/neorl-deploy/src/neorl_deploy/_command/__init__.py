"""The command ``neorl-deploy``."""
