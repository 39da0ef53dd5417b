"""The guard as a Gymnasium environment, for training elsewhere (extra ``gymnasium``)."""

from neorl_safety.gymnasium_guard._wrapper import GuardedEnv as GuardedEnv

__all__ = ["GuardedEnv"]
