"""CQL and Cal-QL beside their equations."""

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

from neorl_agents import CQL, CalQL
from neorl_agents.sampling import returns_to_go
from neorl_core import Transition

VARIANTS = {
    "corrected": (CQL, {}),
    "joined with a multiplier": (CQL, {"density_correction": False, "lagrange": True}),
    "calibrated with entropy": (CalQL, {"entropy_backup": True, "sample_temperature": 0.7}),
}
N, RAISED = 3, 2.0


def sampled(parity, actor, rows, key):
    """Uniform actions, then the policy's at both ends of every row; their log-densities."""
    shape = (len(rows.action), N, rows.action.shape[-1])
    uniform_key, here_key, next_key = parity.split(key, 3)
    with jax.enable_x64(True):
        uniform = np.asarray(jax.random.uniform(uniform_key, shape, float, -1, 1))
    samples, densities = [uniform], [np.full(shape[:2], shape[-1] * np.log(0.5))]
    for where, one_key in ((rows.obs, here_key), (rows.next_obs, next_key)):
        repeated = np.repeat(where[:, None], N, axis=1)
        more, density = parity.squashed(actor, repeated, parity.normal(one_key, shape), -20, 2)
        samples.append(more)
        densities.append(density)
    return np.concatenate(samples, 1), np.concatenate(densities, 1)


@pytest.mark.parametrize("name", VARIANTS)
def test_one_update_is_that_of_the_equations(parity, name):
    kind, fields = VARIANTS[name]
    more = {"returns": RAISED} if kind is CalQL else {}
    # Samples that are as dense as can be weigh nothing where densities are corrected for.
    narrow = 0.0 if fields.get("density_correction", True) else -20.17
    done = parity.update(kind, n_samples=N, log_std=(2.43, narrow), **more, **fields)
    a, s = done.algorithm, done.before
    rows = jax.tree.map(lambda x: x[0], done.rows)
    obs, action, batch, act = rows.obs, rows.action, *rows.action.shape
    actor_key, target_key, sample_key = parity.split(done.key, 3)
    alpha = np.exp(s.parameters["log_temperature"])

    def draw(actor, where, key):
        return parity.squashed(actor, where, parity.normal(key, (batch, act)), -20, 2)

    # Actor and temperature.
    def actor_loss(actor):
        drawn, log_prob = draw(actor, obs, actor_key)
        return np.mean(alpha * log_prob - parity.values(s.parameters["critics"], obs, drawn).min(0))

    parity.agree(
        done.after.parameters["actor"], parity.descended(actor_loss, s.parameters["actor"])
    )
    _, log_prob = draw(s.parameters["actor"], obs, actor_key)
    slope = -np.mean(log_prob + a.target_entropy * act)
    np.testing.assert_allclose(
        done.after.parameters["log_temperature"],
        s.parameters["log_temperature"] - parity.rate * slope,
        rtol=1e-9,
    )

    # Critics.
    drawn, log_prob = draw(s.parameters["actor"], rows.next_obs, target_key)
    following = parity.values(s.targets["critics"], rows.next_obs, drawn).min(0)
    if a.entropy_backup:
        following = following - alpha * log_prob
    target = rows.reward + a.discount * np.where(rows.terminated, 0, following)
    samples, densities = sampled(parity, s.parameters["actor"], rows, sample_key)

    def conservative(critics):
        q = parity.values(critics, obs, action)
        q_samples = parity.values(critics, np.repeat(obs[:, None], 3 * N, axis=1), samples)
        if a.calibrated:
            earned = done.batch.mc_return[0] / s.preparation.reward_unit
            own = np.maximum(q_samples[..., N:], earned[None, :, None])
            assert 0.1 < np.mean(own > q_samples[..., N:]) < 0.9, "some are raised, some are not"
            q_samples = np.concatenate([q_samples[..., :N], own], axis=-1)
        if a.density_correction:
            q_samples = q_samples - densities
        else:
            q_samples = np.concatenate([q_samples, q[..., None]], axis=-1)
        t = a.sample_temperature
        return q, (t * logsumexp(q_samples / t, axis=-1) - q).mean(1)

    multiplier = np.exp(s.parameters["log_multiplier"]) if a.lagrange else 1.0

    def critic_loss(critics):
        q, terms = conservative(critics)
        errors = ((q - target) ** 2).mean(1).sum()
        return errors + a.conservative_weight * multiplier * terms.sum()

    critics = parity.descended(critic_loss, s.parameters["critics"])
    parity.agree(done.after.parameters["critics"], critics)
    parity.agree(done.after.targets["critics"], parity.mixed(s.targets["critics"], critics, a.tau))
    terms = conservative(s.parameters["critics"])[1]
    np.testing.assert_allclose(done.metrics["conservative_term"], terms.mean(), rtol=1e-9)
    excess = a.conservative_weight * (terms.mean() - a.gap)
    moved = parity.rate * multiplier * excess if a.lagrange else 0.0
    np.testing.assert_allclose(
        done.after.parameters["log_multiplier"], s.parameters["log_multiplier"] + moved, rtol=1e-9
    )


def test_a_truncated_episode_goes_on_and_a_terminated_one_does_not():
    reward = np.array([-2.0, -4.0, -3.0, -3.0])
    terminated, truncated = np.zeros(4, bool), np.array([False, True, False, False])
    terminated[3] = True
    log = Transition(
        np.zeros((4, 1)), np.zeros((4, 1)), reward, terminated=terminated, truncated=truncated
    )
    beyond = -3.0 / (1 - 0.5)
    expected = [-2 + 0.5 * (-4 + 0.5 * beyond), -4 + 0.5 * beyond, -3 - 1.5, -3.0]
    np.testing.assert_allclose(returns_to_go(log, discount=0.5), expected, rtol=1e-6)
    undiscounted = returns_to_go(log, discount=1.0)
    np.testing.assert_allclose(undiscounted, [-6, -4, -6, -3])
    # A log may break off in the midst of an episode, which goes on too.
    broken_off = returns_to_go(log._replace(terminated=terminated & False), discount=0.5)
    expected[2:] = [-3 + 0.5 * (-3 + 0.5 * beyond), -3 + 0.5 * beyond]
    np.testing.assert_allclose(broken_off, expected, rtol=1e-6)
