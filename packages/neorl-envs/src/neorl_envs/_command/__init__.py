"""The command ``neorl-envs``."""
