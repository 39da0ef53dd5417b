"""The policy artefact: a policy in one sealed file; the extensible table of kinds of policies."""

from neorl_agents.artefact._artefact import policy_actions as policy_actions
from neorl_agents.artefact._artefact import read_sealed as read_sealed
from neorl_agents.artefact._artefact import write_sealed as write_sealed
from neorl_agents.artefact._kinds import POLICY_KINDS as POLICY_KINDS
from neorl_agents.artefact._kinds import PolicyKind as PolicyKind
from neorl_agents.artefact._kinds import kind_of as kind_of

__all__ = [
    "POLICY_KINDS",
    "PolicyKind",
    "kind_of",
    "policy_actions",
    "read_sealed",
    "write_sealed",
]
