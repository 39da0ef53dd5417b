"""The optimisers of the learners with published recipes, against the source's table."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from neorl_agents import DQN, PPO, SAC, TD3
from neorl_agents.learning import for_run
from neorl_agents.optimisers import OPTIMISERS
from neorl_agents.testing import sized

# By rows of the source: rate, clip of every parameter before the optimiser (0 for none), epsilon.
TABLE = {
    PPO(): (2.5e-4, {"networks": 0.5}, 1e-5),
    SAC(): (3e-4, {"actor": 1.0, "critics": 1.0, "log_temperature": 0.0}, 1e-8),
    TD3(): (3e-4, {"actor": 0.0, "critics": 0.0}, 1e-8),
    DQN(): (2.5e-4, {"values": 0.0}, 1e-8),
    sized(DQN(), optimiser="dqn"): (2.5e-4, {"values": 10.0}, 1.5e-4),
}


def stepped(chain, sizes):
    """Weights after a step down a gradient of each size."""
    weights = {"w": jnp.asarray([1.0, -2.0])}
    step = jax.jit(chain.update)
    state, path = chain.init(weights), []
    for size in sizes:
        gradient = jax.tree.map(lambda x, size=size: size * x, weights)
        moves, state = step(gradient, state, weights)
        weights = optax.apply_updates(weights, moves)
        path.append(weights["w"])
    return np.asarray(path)


def test_the_learners_have_the_optimisers_and_rates_of_their_sources():
    """Row E01: rates, clips and epsilons are those of the table, by their effect on a step."""
    for learner, (rate, clips, eps) in TABLE.items():
        assert set(learner.rates) == set(clips)
        for parameter, clip in clips.items():
            assert getattr(learner, learner.rates[parameter]) == rate
            ours = OPTIMISERS[learner.optimiser_of(parameter)](jnp.asarray(rate))
            table = optax.adam(rate, eps=eps)
            table = optax.chain(optax.clip_by_global_norm(clip), table) if clip else table
            sizes = (1e-6, 0.3, 40.0)
            np.testing.assert_allclose(stepped(ours, sizes), stepped(table, sizes), rtol=1e-6)


def test_the_rate_of_ppo_falls_over_all_updates_of_a_run():
    """Row E01: the schedule of the table ends with the run."""
    assert for_run(PPO(), 700).decay_updates == 700
    assert not hasattr(for_run(SAC(), 700), "decay_updates")
