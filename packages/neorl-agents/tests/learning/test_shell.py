"""What the shell does around the equations of a learner."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, BC, IQL, TD3BC, BaseLearner, CalQL, ReBRAC
from neorl_agents.learning import Fit, for_run, only_batch
from neorl_agents.networks import tanh
from neorl_agents.sampling import Batch, Histories, NSteps, Rows
from neorl_agents.testing import sized
from neorl_core import InputError, as_arrays
from neorl_core.losses import masked_mean

KEY = jax.random.key(0)
SMALL = {"hidden": (4,), "batch_size": 8}


class Costly(BaseLearner):
    """The mean cost of a batch as a parameter, on top of a clone that was fitted before it."""

    rate: float = 1e-2
    reads = ("obs", "action", "cost", "mask")
    rates: ClassVar[dict[str, str]] = {"price": "rate"}

    def fits(self):
        return {"clone": Fit(BC(networks=self.networks, steps=self.steps), 10)}

    def fresh(self, spec, key):
        return {"price": jnp.zeros(spec.n_cost, jnp.float32)}, {}

    def learn(self, state, rows, key):
        rows = only_batch(rows)

        def loss(price):
            off = jnp.sum(jnp.square(price[None] - rows.cost), axis=-1)
            return masked_mean(off, rows.mask), None

        state, value, _ = self.descend(state, "price", loss)
        return state, {"loss": value}


def started(kind, problem, **settings):
    learner = sized(kind(), **SMALL, **settings)
    return learner, learner.init(problem.spec, problem.statistics, KEY)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_several_steps_are_refused_by_learners_of_single_ones(name, problem):
    learner = sized(ALGORITHMS[name](), n_step=3, **SMALL)
    if learner.supports_n_step:
        jax.eval_shape(lambda: learner.init(problem.spec, problem.statistics, KEY))
        assert learner.sampler == NSteps(3, learner.discount)
        return
    words = rf"{type(learner).__name__}\.steps\.n_step must be 1, got 3"
    with pytest.raises(ValueError, match=words):
        learner.init(problem.spec, problem.statistics, KEY)


def test_those_that_take_several_steps():
    assert {n for n, kind in ALGORITHMS.items() if kind.supports_n_step} == {
        "fql",
        "iql",
        "td3_bc",
    }


@pytest.mark.parametrize(("settings", "several"), [({"n_step": 2}, True), ({}, False)])
def test_memory_and_several_steps_also_read_where_episodes_end(settings, several):
    ends = {"terminated", "truncated"}
    assert (ends <= set(sized(TD3BC(), **settings).fields)) == several
    assert "truncated" not in TD3BC().fields
    remembers = sized(BC(), encoder="gru", history_steps=4, **settings)
    assert ends <= set(remembers.fields)
    assert len(remembers.fields) == len(set(remembers.fields))


def test_memory_draws_windows_of_the_rows_that_are_chosen_anyway():
    assert IQL().sampler == Rows()
    assert sized(IQL(), encoder="history", history_steps=5).sampler == Histories(Rows(), 5)
    several = sized(IQL(), encoder="gru", history_steps=5, n_step=2)
    assert several.sampler == Histories(NSteps(2, several.discount), 5)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (IQL, "reward"),
        (IQL, "next_obs"),
        (IQL, "terminated"),
        (ReBRAC, "next_action"),
        (ReBRAC, "truncated"),
        (Costly, "cost"),
    ],
)
def test_a_field_that_the_batch_lacks_is_named(kind, field, problem):
    learner, state = started(kind, problem)
    batch = problem.batch(learner)._replace(**{field: None})
    words = rf"^the batch has no {field}, which {kind.__name__} needs; give every row its {field}"
    with pytest.raises(InputError, match=words):
        jax.eval_shape(learner.update, state, batch, KEY)


def test_a_batch_of_everything_may_be_given_to_every_learner(problem):
    """What a learner does not read makes no difference."""
    learner, state = started(IQL, problem)
    batch = problem.batch(learner)
    more = batch._replace(
        cost=jnp.full((*batch.reward.shape, 1), jnp.nan),
        next_action=jnp.full(batch.action.shape, jnp.nan),
        truncated=jnp.ones(batch.reward.shape, bool),
    )
    update = jax.jit(learner.update)
    chex.assert_trees_all_equal(*(update(state, one, KEY)[0] for one in (batch, Batch(more))))


def test_a_learner_with_costs_is_given_them_in_units_and_trains(problem):
    learner, state = started(Costly, problem)
    batch, update = problem.batch(learner), jax.jit(Costly.update)
    for _ in range(600):
        state, _ = update(as_arrays(learner), state, batch, KEY)
    expected = np.asarray(batch.cost[0], np.float64).mean(0) / np.asarray(problem.log.cost).std(0)
    np.testing.assert_allclose(state.parameters["price"], expected, rtol=0.02)
    assert int(state.updates) == 600


@pytest.mark.nightly
def test_what_was_fitted_before_is_context_and_stays_as_it_is(problem):
    learner = sized(Costly(), **SMALL)
    fit = learner.fits()["clone"]
    assert (type(fit.learner), fit.updates) == (BC, 10)
    clone = fit.learner.init(problem.spec, problem.statistics, jax.random.key(1))
    state = learner.init(problem.spec, problem.statistics, KEY, context={"clone": clone})
    chex.assert_trees_all_equal(state.context["clone"], clone)
    after, _ = learner.update(state, problem.batch(learner), KEY)
    chex.assert_trees_all_equal(after.context, state.context)
    chex.assert_trees_all_equal(after.preparation, state.preparation)
    models = {"mopo", "mobile", "combo", "rambo", "morel"}
    for name in {n for n, kind in ALGORITHMS.items() if not kind.keeps_limits} - models:
        plain = for_run(sized(ALGORITHMS[name](), **SMALL), 1)
        assert dict(plain.fits()) == {}
        assert plain.init(problem.spec, problem.statistics, KEY).context == {}


def test_the_source_of_a_run_is_that_of_a_learner_which_makes_none():
    given = object()
    assert IQL().source(given) is given


def test_a_preparation_that_is_given_is_the_one_of_the_state(problem):
    learner = sized(CalQL(), **SMALL)
    own = learner.prepare(problem.spec, problem.statistics)
    chex.assert_trees_all_equal(
        learner.init(problem.spec, problem.statistics, KEY),
        learner.init(problem.spec, problem.statistics, KEY, preparation=own),
    )
    shifted = jax.tree.map(lambda x: x + 1, own)
    state = learner.init(problem.spec, problem.statistics, KEY, preparation=shifted)
    chex.assert_trees_all_equal(state.preparation, shifted)


class Unnamed(BaseLearner):
    reads = ("obs", "action")
    rates: ClassVar[dict[str, str]] = {}

    def fresh(self, spec, key):
        return {"actor": self.networks.obs_network(spec, spec.n_action, key, output=tanh)}, {}


class Stray(Unnamed):
    rate: float = 1e-3
    rates: ClassVar[dict[str, str]] = {"actor": "rate"}

    def fresh(self, spec, key):
        parameters, _ = super().fresh(spec, key)
        return parameters, {"critics": parameters["actor"]}


class Misspelt(Stray):
    rates: ClassVar[dict[str, str]] = {"actor": "rat"}


class Single(Stray):
    def fresh(self, spec, key):
        return {"actor": super().fresh(spec, key)[0], "critics": None}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Single, r"Single\.fresh must return two dictionaries, .*got a dict"),
        (Misspelt, r"unknown field in Misspelt\.rates 'rat'; did you mean 'rate'"),
        (Unnamed, r"Unnamed\.rates has no learning rate for the parameter 'actor'; add"),
        (
            Stray,
            r"Stray\.fresh returns a target 'critics', but no parameter has this name; its par",
        ),
    ],
)
def test_parts_whose_names_do_not_agree_are_refused(kind, words, problem):
    with pytest.raises(InputError, match=words):
        sized(kind(), **SMALL).init(problem.spec, problem.statistics, KEY)


@pytest.mark.parametrize("missing", ["fresh", "learn"])
def test_a_learner_without_equations_says_what_to_define(missing, problem):
    class Empty(BaseLearner):
        reads = ("obs", "action")
        if missing == "learn":

            def fresh(self, spec, key):
                return {}, {}

    learner = sized(Empty(), **SMALL)

    def first_update():
        state = learner.init(problem.spec, problem.statistics, KEY)
        return learner.update(state, problem.batch(learner), KEY)

    with pytest.raises(NotImplementedError, match=f"Empty must define {missing}"):
        first_update()


class Forgetful(BC):
    """Behaviour cloning whose equations forget to return anything."""

    def learn(self, state, rows, key):
        super().learn(state, rows, key)


def test_equations_that_return_nothing_are_named(problem):
    learner = sized(Forgetful(), **SMALL)
    state = learner.init(problem.spec, problem.statistics, KEY)
    with pytest.raises(InputError, match=r"Forgetful\.learn must return a state .* NoneT"):
        jax.eval_shape(learner.update, state, problem.batch(learner), KEY)


class Undeclared(BaseLearner):
    """Fields with plain defaults, as a learner from outside may have them."""

    noise: float = 0.1
    discount: float = 0.9
    speed: float = 1e-3

    rates: ClassVar[dict[str, str]] = {"actor": "speed"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "big", None, True])
def test_a_field_without_a_range_still_takes_finite_numbers_alone(value):
    with pytest.raises(ValueError, match=r"Undeclared\.noise must be a (finite )?number, got"):
        Undeclared(noise=value).validate()
    for number in (0, 2.0, jnp.ones(())):
        Undeclared(noise=number).validate()


def test_rates_and_the_discount_are_checked_without_a_range():
    with pytest.raises(ValueError, match=r"Undeclared\.discount must be a number in \[0, 1\]"):
        Undeclared(discount=1.1).validate()
    with pytest.raises(ValueError, match=r"Undeclared\.speed must be a number above 0, got 0"):
        Undeclared(speed=0.0).validate()
