"""Sites whose networks have other topologies train one graph policy; another plant is refused."""

import jax
import numpy as np
import pytest

from neorl_agents import BC
from neorl_agents.testing import sized
from neorl_core import InputError
from neorl_envs import collect_log
from neorl_envs.graph_plants import load_balance
from neorl_envs.wrappers import Wrapper
from neorl_train.data import training_data
from neorl_train.federation import Federation, FederationConfig, federate

PLANT = load_balance(4, edge_prob=0.5, change=0.0, fewest=2)
TOPOLOGIES = (((0, 1), (1, 2), (2, 3)), ((0, 1), (0, 2), (0, 3)), ((0, 1), (1, 2)), ((0, 1),))
SETTINGS = Federation(FederationConfig(rounds=2, local_updates=4))


class Site(Wrapper):
    links: tuple[tuple[int, int], ...] = ()

    def sample_params(self, key, *, preset="plant", spread=0.15):
        return self.env.topology(self.links, n_nodes=max(max(pair) for pair in self.links) + 1)

    def default_params(self, preset="plant"):
        return self.sample_params(None)


def log_of(plant, seed):
    who = dict(plant.tunings())
    return training_data(collect_log(plant, who, n_steps=60, key=jax.random.key(seed)))


@pytest.mark.nightly
def test_four_topologies_train_one_graph_policy_and_another_plant_is_refused():
    """Half a minute of compiling: a graph network in the program of a federation."""
    learner = sized(BC(), hidden=(8,), batch_size=16, kind="gcn")
    sites = {f"site{i}": log_of(Site(PLANT, t), i) for i, t in enumerate(TOPOLOGIES)}
    result = federate(learner, sites, SETTINGS, print_line=lambda line: None)
    common = [result.parameters[name] for name in sites]
    assert all(np.array_equal(common[0], other) for other in common)
    row = sites["site2"].rows.obs[0]  # a node of four is missing
    policies = [policy for policy in result.policies.values()]
    actions = [policy(policy.initial_carry(), row, None)[1] for policy in policies]
    assert all(np.array_equal(actions[0], other) for other in actions)
    assert np.isfinite(actions[0]).all()
    plant = load_balance(5, edge_prob=0.5, change=0.0, fewest=2)
    larger = {**sites, "larger": log_of(plant, 9)}
    # Load, degree and presence of five nodes, and presence of twenty directed links.
    with pytest.raises(InputError, match="site larger has 35 observed channels") as error:
        federate(learner, larger, SETTINGS, print_line=lambda line: None)
    assert "only sites with the same channels can train one policy" in str(error.value)
