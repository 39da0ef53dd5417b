"""The learners by name."""

from neorl_agents.algorithms._bc import BC
from neorl_agents.algorithms._iql import IQL
from neorl_agents.algorithms._td3_bc import TD3BC

ALGORITHMS: dict[str, type] = {"bc": BC, "td3_bc": TD3BC, "iql": IQL}
"""Every learner by the name that configurations use. Adding an entry adds its tests."""
