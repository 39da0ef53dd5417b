"""The guard inside a Gymnasium environment, for those who train elsewhere (extra ``gymnasium``)."""

from neorl_safety.gymnasium_guard._wrapper import GuardedEnv as GuardedEnv

__all__ = ["GuardedEnv"]
