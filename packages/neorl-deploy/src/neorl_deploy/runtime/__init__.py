"""Executes a bundle step by step (extra ``jax``, or only NumPy if the bundle has that form)."""

from neorl_deploy.runtime._decision import Decision as Decision
from neorl_deploy.runtime._decision import Event as Event
from neorl_deploy.runtime._decision import LastSent as LastSent
from neorl_deploy.runtime._load import load_bundle as load_bundle
from neorl_deploy.runtime._runtime import Runtime as Runtime
from neorl_deploy.runtime._state import StateError as StateError

__all__ = [
    "Decision",
    "Event",
    "LastSent",
    "Runtime",
    "StateError",
    "load_bundle",
]
