"""Acts step by step (extra ``jax``)."""

from neorl_deploy.runtime._events import Event as Event
from neorl_deploy.runtime._runtime import Decision as Decision
from neorl_deploy.runtime._runtime import LastSent as LastSent
from neorl_deploy.runtime._runtime import Runtime as Runtime
from neorl_deploy.runtime._runtime import load_bundle as load_bundle

__all__ = [
    "Decision",
    "Event",
    "LastSent",
    "Runtime",
    "load_bundle",
]
