"""Optimisers are optax's, open to others, and their rate is data."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from neorl_agents import BC, TD3BC
from neorl_agents.optimisers import OPTIMISERS, descend, init_optimiser, minimise
from neorl_agents.testing import sized
from neorl_core import InputError, as_arrays
from neorl_core.testing import assert_close, state_keeps_form

KEY = jax.random.key(0)
RATE = jnp.float32(1e-2)
TRACES: list[str] = []


def clipped_adamw(rate):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.1))


def warmed_up(rate):
    shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=2, decay_steps=10)
    return optax.chain(optax.adam(rate), optax.scale_by_schedule(shape))


def scheduled(rate):
    return optax.adam(optax.cosine_decay_schedule(rate, decay_steps=10))


def injected(rate):
    return optax.inject_hyperparams(optax.sgd)(learning_rate=rate)


OTHERS = {f"test_{f.__name__}": f for f in (clipped_adamw, warmed_up, scheduled, injected)}
every_optimiser = pytest.mark.parametrize("name", ["adam", *OTHERS])


@pytest.fixture(scope="module", autouse=True)
def registered():
    for name, optimiser in OTHERS.items():
        OPTIMISERS.register(name, optimiser)


def counted(name, parameters, state, gradient, rate):
    TRACES.append(name)
    return descend(name, parameters, state, gradient, rate)


@partial(jax.jit, static_argnums=0)
def step(name, parameters, state, gradient, rate):
    return counted(name, parameters, state, gradient, rate)


@partial(jax.jit, static_argnums=0)
def swept(name, parameters, state, gradient, rates):
    return jax.vmap(partial(descend, name, parameters, state, gradient))(rates)


@pytest.fixture
def tree():
    rng = np.random.default_rng(0)
    parameters = {"w": jnp.asarray(rng.normal(size=(3, 2)), jnp.float32), "none": jnp.zeros((0, 2))}
    return parameters, jax.tree.map(lambda x: 4 * x + 1, parameters)


@every_optimiser
def test_steps_are_those_of_optax(name, tree):
    parameters, gradient = tree
    bare = OPTIMISERS[name](1e-2)
    expected, bare_state = parameters, bare.init(parameters)
    state = init_optimiser(name, parameters, RATE)
    for _ in range(4):
        updates, bare_state = bare.update(gradient, bare_state, expected)
        expected = optax.apply_updates(expected, updates)
        parameters, state = step(name, parameters, state, gradient, RATE)
    assert_close(parameters, expected, rtol=1e-5)
    assert not np.array_equal(parameters["w"], tree[0]["w"])


@every_optimiser
def test_another_rate_is_the_same_program(name, tree):
    parameters, gradient = tree
    state = init_optimiser(name, parameters, RATE)
    TRACES.clear()
    for rate in (1e-2, 1e-3):
        parameters, state = step(name, parameters, state, gradient, jnp.float32(rate))
    assert len(TRACES) <= 1


@every_optimiser
def test_a_swept_rate_gives_the_single_steps(name, tree):
    parameters, gradient = tree
    rates = jnp.asarray([1e-2, 1e-1])
    state = init_optimiser(name, parameters, rates[0])
    for _ in range(2):  # a warm-up begins with a step of zero
        _, state = step(name, parameters, state, gradient, rates[0])
    together, _ = swept(name, parameters, state, gradient, rates)
    for i in range(2):
        alone, _ = step(name, parameters, state, gradient, rates[i])
        assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], together), alone, rtol=1e-5)
    # `inject_hyperparams` keeps the rate in its state, which is that of the first here.
    assert np.array_equal(together["w"][0], together["w"][1]) == (name == "test_injected")


@every_optimiser
def test_the_state_is_arrays_of_strong_dtype_and_keeps_its_form(name, tree):
    parameters, gradient = tree
    state = init_optimiser(name, parameters, RATE)
    _, new = step(name, parameters, state, gradient, RATE)
    for leaf in jax.tree.leaves((state, new)):
        assert isinstance(leaf, jax.Array)
        assert not leaf.weak_type

    def one(carry, gradient, key):
        return descend(name, *carry, gradient, RATE), None

    state_keeps_form(one, (parameters, state), gradient, KEY)


@pytest.mark.parametrize("name", ["test_clipped_adamw", "test_warmed_up"])
def test_a_learner_trains_with_a_registered_optimiser(name, problem, few):
    """The registered optimiser is the one that steps, and the rate still is data."""
    plain = sized(BC(), optimiser=name, **few)
    state = plain.init(problem.spec, problem.statistics, KEY)
    batch = problem.batch(plain)

    def run(algorithm, state):
        return jax.lax.scan(lambda s, _: algorithm.update(s, batch, KEY), state, None, length=5)

    def side_by_side(algorithms, state):
        return jax.vmap(run, in_axes=(0, None))(algorithms, state)

    rates = [
        as_arrays(sized(BC(), optimiser=name, learning_rate=rate, **few)) for rate in (3e-4, 3e-3)
    ]
    together, metrics = jax.jit(side_by_side)(
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *rates), state
    )
    assert np.all(np.isfinite(metrics["actor_loss"]))
    assert metrics["actor_loss"][1, -1] < metrics["actor_loss"][0, -1] < metrics["actor_loss"][0, 0]
    reference = sized(BC(), **few).init(problem.spec, problem.statistics, KEY)
    assert jax.tree.structure(state.optimisers) != jax.tree.structure(reference.optimisers)
    assert optax.tree.get(together.optimisers["actor"], "mu").weights[0].shape == (2, 4, 16)


def test_an_unknown_optimiser_is_refused_with_the_nearest(problem):
    with pytest.raises(
        ValueError, match=r"TD3BC\.steps\.optimiser must be one of adam, .*, got 'adan'"
    ):
        sized(TD3BC(), optimiser="adan").validate()
    with pytest.raises(InputError, match="unknown optimiser 'adan'; did you mean 'adam'"):
        init_optimiser("adan", jnp.zeros(2), 0.1)


def branching(rate):
    return optax.adam(rate if rate > 0 else 1.0)


def growing(rate):
    def update(gradient, state, parameters=None):
        return gradient, (*state, jnp.zeros(()))

    return optax.GradientTransformation(lambda parameters: (), update)


def reshaping(rate):
    return optax.stateless(lambda gradient, parameters: jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("optimiser", "message"),
    [
        (optax.adam(1e-3), "expected a function from a learning rate .*, got a Gradient"),
        ("adam", "expected a function from a learning rate .*, got a str"),
        (lambda rate: rate, "return an optax.GradientTransformation, got a "),
        (branching, "the learning rate is traced.*scale_by_schedule"),
        (growing, "its state must keep structure and shapes"),
        (reshaping, "its updates must have the structure of the parameters"),
    ],
)
def test_what_is_no_optimiser_is_refused_when_it_is_registered(optimiser, message):
    with pytest.raises(InputError, match=message):
        OPTIMISERS.register("test_wrong", optimiser)
    assert "test_wrong" not in OPTIMISERS


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda x: jnp.sum(x), r"must return two results, .*`return loss, None`.*, got one result"),
        (lambda x: (jnp.sum(x), x, x), "must return two results, .*, got 3 results"),
        (
            lambda x: (x**2, None),
            r"must be one number, such as masked_mean\(.*\), got shape \(2,\)",
        ),
    ],
    ids=["alone", "three", "not reduced"],
)
def test_a_loss_in_another_form_is_refused(loss, message):
    x = jnp.asarray([1.0, -2.0])
    with pytest.raises(TypeError, match=message):
        minimise("adam", loss, x, init_optimiser("adam", x, 0.1), 0.1)
