"""The subcommands of ``neorl-train``, one module each, with a function ``command``."""
