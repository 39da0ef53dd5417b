"""One update of batch-constrained Q-learning with prices beside its equations, two limits."""

import jax
import numpy as np
import pytest

from neorl_agents import BCQLag
from neorl_agents.testing import sized

from .conftest import network
from .test_equations import bellman, counted, squared
from .test_safe_equations import (
    GAINS,
    MASKED,
    check_control,
    counted_in_units,
    pairs,
    two_limits,  # noqa: F401
)


@pytest.mark.nightly
@pytest.mark.parametrize("cost_of", ["policy", "samples"])
@pytest.mark.parametrize("costly", ["larger", "smaller"])
def test_bcq_lag(parity, two_limits, costly, cost_of):  # noqa: C901, F811
    settings = {"discount": 0.9, "phi": 0.3, "n_samples": 3, "costly": costly, **GAINS}
    settings["cost_of"] = cost_of
    done = parity.update(BCQLag, of=two_limits, masked=MASKED, **settings)
    a, s, rows = done.algorithm, done.before, counted(done.rows, MASKED)
    now, slow = s.parameters, s.targets
    size, act = rows.action.shape
    keys = parity.split(done.key, 4)

    def noise(key, *shape):
        return parity.normal(key, (size + MASKED, *shape, 2 * act))[:size]

    def decoded(decoder, obs, z):
        return parity.network(decoder, np.concatenate([obs, z], -1))

    def moved(actor, obs, action):
        way = parity.network(actor, np.concatenate([obs, action], -1))
        return np.clip(action + a.phi * way, -1, 1)

    def model_loss(encoder, decoder):
        out = parity.network(encoder, np.concatenate([rows.obs, rows.action], -1))
        mean, log_std = np.split(out, 2, -1)
        log_std = np.clip(log_std, -4, 15)
        off = decoded(decoder, rows.obs, mean + np.exp(log_std) * noise(keys[0])) - rows.action
        far = (mean**2 + np.exp(2 * log_std) - 1 - 2 * log_std) / 2
        return np.mean((off**2).mean(-1) + a.kl_weight * far.mean(-1))

    losses = {
        "encoder": lambda e: model_loss(e, now["decoder"]),
        "decoder": lambda d: model_loss(now["encoder"], d),
    }
    model = {name: parity.descended(loss, now[name]) for name, loss in losses.items()}
    parity.agree({name: done.after.parameters[name] for name in model}, model)

    def best(critics, key, least, n_cost):
        collected = []
        for k, z in enumerate(np.moveaxis(np.clip(noise(key, 3), -0.5, 0.5), 1, 0)):
            action = moved(
                slow["actor"], rows.next_obs, decoded(model["decoder"], rows.next_obs, z)
            )
            values = parity.values(critics, rows.next_obs, action).reshape(2, n_cost, size)
            collected.append(least * values.min(0) + (1 - least) * values.max(0))
            assert k < 3
        return np.max(collected, axis=0)

    target = bellman(rows, a.discount, best(slow["critics"], keys[1], 0.75, 1)[0])
    critics = parity.descended(lambda c: squared(parity, c, rows, target), now["critics"])
    parity.agree(done.after.parameters["critics"], critics)

    least = 0.25 if costly == "larger" else 0.75
    still = np.zeros((size, 2 * act))
    if cost_of == "samples":
        following = best(slow["cost_critics"], keys[2], least, 2)
    else:
        taken = decoded(model["decoder"], rows.next_obs, still)
        taken = moved(slow["actor"], rows.next_obs, taken)
        values = parity.values(slow["cost_critics"], rows.next_obs, taken).reshape(2, 2, size)
        following = least * values.min(0) + (1 - least) * values.max(0)
    cost_target = counted_in_units(s, rows).T + a.discount * np.where(rows.terminated, 0, following)

    def cost_loss(critics):
        off = pairs(parity, critics, rows.obs, rows.action) - cost_target
        return (off**2).mean(-1).sum()

    costs = parity.descended(cost_loss, now["cost_critics"])
    parity.agree(done.after.parameters["cost_critics"], costs)

    middle = decoded(model["decoder"], rows.obs, np.clip(noise(keys[3]), -0.5, 0.5))

    def cost(actor, action):
        values = pairs(parity, costs, rows.obs, moved(actor, rows.obs, action))
        return values.max(0) if costly == "larger" else values.min(0)

    judged = middle if cost_of == "samples" else decoded(model["decoder"], rows.obs, still)
    prices = check_control(parity, done, cost(now["actor"], judged).mean(-1))
    # The smaller of two untrained critics may predict less than the limit of either cost.
    assert costly == "smaller" or prices.max() > 0.03, "some price must play a part"

    def actor_loss(actor):
        earned = parity.values(critics, rows.obs, moved(actor, rows.obs, middle)).min(0)
        return -(earned - (prices[:, None] * cost(actor, middle)).sum(0)).mean()

    actor = parity.descended(actor_loss, now["actor"])
    parity.agree(done.after.parameters["actor"], actor)
    for name, fast in (("actor", actor), ("critics", critics), ("cost_critics", costs)):
        parity.agree(done.after.targets[name], parity.mixed(slow[name], fast, a.tau))


def test_the_policy_moves_what_the_middle_of_the_latent_decodes_to(problem):
    learner = sized(BCQLag(), hidden=(8, 8), phi=0.3)
    state = learner.init(problem.spec, problem.statistics, jax.random.key(0))
    obs = np.asarray(problem.log.obs[:5])
    actions = jax.vmap(lambda one: learner.policy(state)((), one)[1])(obs)
    maps, now = jax.device_get((state.preparation, state.parameters))
    seen = np.asarray(maps.obs.to_scaled(obs))
    middle = network(now["decoder"], np.concatenate([seen, np.zeros((5, 4))], -1))
    way = network(now["actor"], np.concatenate([seen, middle], -1))
    unit = np.clip(middle + 0.3 * way, -1, 1)
    np.testing.assert_allclose(
        actions, maps.low + (maps.high - maps.low) * (unit + 1) / 2, rtol=1e-4
    )
    assert np.abs(way).max() > 0.05, "the actor must play a part"
