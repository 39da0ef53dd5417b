"""Modules of Equinox as networks of every kind of learner, written to files and read back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import BC, IQL, SACN, load_policy, save_policy
from neorl_agents.artefact import policy_actions
from neorl_agents.learning import Networks
from neorl_agents.networks import (
    NETWORKS,
    Encoding,
    init_network,
    module_kind,
    network_static,
    network_template,
    tanh,
)
from neorl_agents.testing import algorithm_laws, sized
from neorl_core import InputError

KEY = jax.random.key(0)
NAME = "attention_over_channels"


class Attention(eqx.Module):
    """Every channel is a token: attention and layer normalisation of ``equinox.nn``."""

    embed: eqx.nn.Linear
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    last: eqx.nn.Linear

    def __call__(self, x):
        tokens = jax.vmap(self.embed)(jnp.stack([x, jnp.arange(x.shape[0]) / x.shape[0]], axis=1))
        mixed = tokens + self.attention(tokens, tokens, tokens)
        return self.last(jnp.tanh(self.norm(jnp.mean(jax.vmap(self.norm)(mixed), axis=0))))


def attention_over_channels(widths, key):
    embed, attention, last = jax.random.split(key, 3)
    width = widths[1]
    return Attention(
        eqx.nn.Linear(2, width, key=embed),
        eqx.nn.MultiheadAttention(2, width, key=attention),
        eqx.nn.LayerNorm(width),
        eqx.nn.Linear(width, widths[-1], key=last),
    )


@pytest.fixture(scope="module", autouse=True)
def registered():
    if NAME not in dict(NETWORKS):
        NETWORKS.register(NAME, module_kind(attention_over_channels))


def learner(kind):
    return sized(kind(networks=Networks(kind=NAME)), hidden=(8,), batch_size=32)


@pytest.mark.parametrize(
    "law",
    [
        pytest.param("actions_stay_in_their_box", marks=pytest.mark.nightly),
        "every_leaf_is_a_strong_array_and_keeps_its_form",
        pytest.param("masked_rows_are_inert", marks=pytest.mark.nightly),
        "other_values_compile_nothing",
        "a_one_step_task_is_learned",
    ],
)
def test_a_learner_keeps_the_laws_with_a_module_of_equinox(registered, law):
    laws = algorithm_laws(lambda: learner(IQL))
    (check,) = (result for name, result in laws.items() if name.endswith(law))
    check()


@pytest.mark.parametrize(
    "kind", [IQL, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in (SACN, BC))]
)
def test_its_policy_acts_alike_when_it_is_read_back(kind, problem, tmp_path):
    algorithm = learner(kind)
    state = algorithm.init(problem.spec, problem.statistics, KEY)
    state, _ = jax.jit(algorithm.update)(state, problem.batch(algorithm), KEY)
    policy = algorithm.policy(state)
    obs = problem.log.obs[:32]
    save_policy(tmp_path / "a.safetensors", policy, problem.spec, parity_obs=np.asarray(obs))
    again = load_policy(tmp_path / "a.safetensors").policy
    np.testing.assert_array_equal(policy_actions(again, obs), policy_actions(policy, obs))


@pytest.mark.nightly
def test_the_output_is_that_of_the_module_row_by_row():
    widths = (5, 8, 3)
    network = init_network(widths, KEY, kind=NAME, output=tanh)
    module = attention_over_channels(widths, KEY)
    x = jax.random.normal(KEY, (2, 7, 5))
    expected = np.tanh(jax.vmap(jax.vmap(module))(x))
    np.testing.assert_allclose(network(x), expected, rtol=1e-5, atol=1e-6)
    first = network.first_outputs(2)
    np.testing.assert_allclose(first(x), expected[..., :2], rtol=1e-5, atol=1e-6)
    assert (network.n_outputs, first.n_outputs) == (3, 2)


def test_it_stands_behind_a_recurrent_unit_and_in_an_ensemble_and_is_written_down():
    encoding = Encoding("gru", 4, 3, 2)
    init = jax.jit(lambda: init_network((encoding.width, 8, 2), KEY, kind=NAME, encoding=encoding))
    network = init()
    assert jax.eval_shape(network, jnp.ones((5, encoding.width))).shape == (5, 2)
    static = network_static(network.head.first_outputs(1, output=tanh))
    assert static["network"] == NAME
    empty = network_template(static)
    shapes = [jax.tree.map(jnp.shape, one.arrays) for one in (network.head, empty)]
    assert shapes[0] == shapes[1]
    assert jax.tree.structure(empty) == jax.tree.structure(
        network.head.first_outputs(1, output=tanh)
    )


def test_two_networks_of_a_kind_share_one_program():
    traces = []

    @jax.jit
    def outputs(network, x):
        traces.append(1)
        return network(x)

    for seed in (0, 1):
        outputs(init_network((5, 8, 3), jax.random.key(seed), kind=NAME), jnp.ones((2, 5)))
    assert len(traces) == 1


class Counting(eqx.Module):
    weight: jax.Array
    count: jax.Array


def test_what_is_no_kind_is_refused():
    kind = module_kind(lambda widths, key: Counting(jnp.ones(2), jnp.zeros(2, jnp.int32)))
    with pytest.raises(TypeError, match="has an array of int32, which cannot be trained"):
        kind.init((2, 2), KEY)
    with pytest.raises(InputError, match="module_kind makes one of any Equinox module"):
        NETWORKS.register("bare_function", attention_over_channels)
    with pytest.raises(TypeError, match="a Counting cannot be stored"):
        network_static(Counting(jnp.ones(2), jnp.ones(2)))
