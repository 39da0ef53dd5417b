"""What leaves a run: a policy in one sealed file."""

from neorl_agents.artefact._artefact import policy_actions as policy_actions

__all__ = [
    "policy_actions",
]
