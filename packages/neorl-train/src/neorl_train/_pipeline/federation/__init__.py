"""Federations: several sites, each with its own run, that train one policy."""
