"""Fitted Q evaluation against closed forms, and the rows that it is given."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.learning import Networks
from neorl_agents.models import FittedQEvaluation, with_next_actions
from neorl_agents.networks import NETWORKS, init_mlp
from neorl_agents.testing import learner_laws, sized, statistics_of
from neorl_core import Channel, CostChannel, InputError, Spec, Transition, as_arrays
from neorl_core.control import ConstantPolicy

KEY = jax.random.key(0)
LAWS = {
    f"{costs}-{name}": law
    for costs in (False, True)
    for name, law in learner_laws(
        lambda costs=costs: sized(
            FittedQEvaluation(evaluates_costs=costs), hidden=(8, 8), batch_size=32
        )
    ).items()
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_law(law):
    law()


# A level that is filled: x' = a x + b u, r = 2 x - u / 25, one cost |u|; the policy holds u.
A, B, DISCOUNT = 0.8, 0.01, 0.9
SPEC = Spec(
    (Channel("level", "m", -5.0, 5.0),),
    (Channel("valve", "%", 0.0, 100.0),),
    (CostChannel("flow", "kg", 1.0, "step"),),
    dt=1.0,
    horizon=32,
)


def linear_log(rows=512, seed=0):
    rng = np.random.default_rng(seed)
    obs, action = rng.normal(size=(rows, 1)), rng.uniform(0, 100, (rows, 1))
    f32 = lambda x: np.asarray(x, np.float32)  # noqa: E731
    flags = np.zeros(rows, bool)
    return Transition(
        obs=f32(obs),
        action=f32(action),
        reward=f32(2 * obs[:, 0] - action[:, 0] / 25),
        cost=f32(action),
        next_obs=f32(A * obs + B * action),
        next_action=f32(action),
        terminated=flags,
        truncated=~flags,
    )


def values_of_holding(held, obs, action):
    """Q(x, u) = r(x, u) + discount V(a x + b u), V(x) = (2 x + c) / (1 - discount a)."""
    steady = (2 * DISCOUNT * B * held / (1 - DISCOUNT * A) - held / 25) / (1 - DISCOUNT)
    after = 2 * (A * obs + B * action) / (1 - DISCOUNT * A) + steady
    cost = action + DISCOUNT * held / (1 - DISCOUNT)
    return 2 * obs - action / 25 + DISCOUNT * after, cost


@pytest.fixture(scope="module")
def linear():
    """A kind of network that is one affine layer, in which values of the linear plant are exact."""
    name = "one_affine_layer_of_values"
    affine = lambda widths, key, **options: init_mlp((widths[0], widths[-1]), key)  # noqa: E731
    NETWORKS.register(name, NETWORKS.find("mlp")._replace(init=affine))
    return sized(
        FittedQEvaluation(
            discount=DISCOUNT, evaluates_costs=True, tau=0.05, networks=Networks(kind=name)
        ),
        batch_size=512,
    )


@pytest.mark.parametrize("held", [20.0, 80.0])
def test_on_a_linear_plant_it_finds_the_closed_form(linear, held):
    log = with_next_actions(linear_log(), ConstantPolicy(jnp.asarray([held])))
    state = linear.init(SPEC, statistics_of(log), KEY)
    batch = jax.tree.map(lambda x: jnp.asarray(x)[None], log)

    @jax.jit
    def several(learner, state):
        return jax.lax.scan(lambda s, _: learner.update(s, batch, KEY), state, length=1500)

    for rate in (1e-1, 1e-2, 1e-3):
        state, metrics = several(as_arrays(sized(linear, learning_rate=rate)), state)
    for obs, action in ((-1.0, 10.0), (0.5, 90.0)):
        value = linear.value(state, jnp.asarray([obs]), jnp.asarray([action]))
        reward, cost = values_of_holding(held, obs, action)
        np.testing.assert_allclose(value.reward, reward, atol=0.05)
        np.testing.assert_allclose(value.cost, [cost], rtol=2e-3)
    mean_of_log = np.mean([values_of_holding(held, o, a)[0] for o, a in
                           zip(log.obs[:, 0], log.action[:, 0], strict=True)])  # fmt: skip
    np.testing.assert_allclose(metrics["q"][-1], mean_of_log, atol=0.05)


class Recalls(eqx.Module):
    """Answers with the steps that it has seen, in hundreds, and the action that it learned of."""

    def initial_carry(self):
        return jnp.zeros(2)

    def __call__(self, carry, obs, key=None):
        return carry.at[0].add(1), (100 * carry[0] + carry[1])[None]

    def sent(self, carry, action):
        return carry.at[1].set(action[0])


def episodes():
    ends = np.array([0, 0, 1, 0, 1, 0, 0], bool)
    terminated = np.array([0, 0, 1, 0, 0, 0, 0], bool)
    action = np.arange(7.0, dtype=np.float32)[:, None]
    obs = np.zeros((7, 1), np.float32)
    return Transition(
        obs, action, np.zeros(7, np.float32), next_obs=obs, next_action=action * 0,
        terminated=terminated, truncated=ends & ~terminated,
    )  # fmt: skip


def test_without_a_policy_the_logs_own_actions_stand_where_they_are_known():
    rows = with_next_actions(episodes())
    # Behind a termination nothing follows; of the last rows of the others nobody knows what did.
    np.testing.assert_array_equal(rows.mask, [True, True, True, True, False, True, False])
    np.testing.assert_array_equal(rows.next_action[:, 0], [1, 2, 0, 4, 0, 6, 0])


def test_a_policy_with_memory_begins_anew_with_every_episode_and_behind_gaps():
    rows = episodes()._replace(mask=np.array([1, 1, 1, 1, 1, 0, 1], bool))
    chosen = with_next_actions(rows, Recalls()).next_action[:, 0]
    # Hundreds: steps of the piece so far. Units: what was done in the row before.
    np.testing.assert_array_equal(chosen[rows.mask], [100, 201, 302, 103, 204, 106])


def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(InputError, match="column next_obs of the log is missing"):
        with_next_actions(episodes()._replace(next_obs=None))
    alone = jax.tree.map(lambda x: x[:1], episodes()._replace(truncated=np.ones(7, bool)))
    with pytest.raises(InputError, match="needs rows with a next row in the same episode"):
        with_next_actions(alone)
    for settings, words in (
        ({"encoder": "history"}, "networks.encoder must be 'none'"),
        ({"n_step": 3}, "n_step must be 1, got 3"),
        ({"tau": 0.0}, "tau"),
    ):
        with pytest.raises(ValueError, match=words):
            sized(FittedQEvaluation(), **settings).validate()
