"""Executes a bundle step by step (extra ``jax``, or only NumPy if the bundle has that form)."""

from neorl_deploy.runtime._decision import Decision as Decision
from neorl_deploy.runtime._decision import Event as Event
from neorl_deploy.runtime._decision import LastSent as LastSent
from neorl_deploy.runtime._decision import flag_sentences as flag_sentences
from neorl_deploy.runtime._forms import open_programs as open_programs
from neorl_deploy.runtime._load import load_bundle as load_bundle
from neorl_deploy.runtime._operations import OPERATION_NAMES as OPERATION_NAMES
from neorl_deploy.runtime._operations import Operation as Operation
from neorl_deploy.runtime._operations import Operations as Operations
from neorl_deploy.runtime._operations import as_function as as_function
from neorl_deploy.runtime._operations import read_operations as read_operations
from neorl_deploy.runtime._runtime import Runtime as Runtime
from neorl_deploy.runtime._state import StateError as StateError

__all__ = [
    "OPERATION_NAMES",
    "Decision",
    "Event",
    "LastSent",
    "Operation",
    "Operations",
    "Runtime",
    "StateError",
    "as_function",
    "flag_sentences",
    "load_bundle",
    "open_programs",
    "read_operations",
]
