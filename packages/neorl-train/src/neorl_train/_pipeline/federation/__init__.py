"""Federations: several sites, each a run of its own, that train one policy."""
