"""What a learner from outside gives back is refused by name while it is traced."""

import dataclasses
from collections import namedtuple

import jax
import jax.numpy as jnp
import pytest

from neorl_agents import ALGORITHMS, BC
from neorl_agents.learning import WHOLE_RUN, require_answer, require_policy
from neorl_agents.testing import algorithm_laws, sized
from neorl_core import Channel, InputError, Spec
from neorl_core.control import ConstantPolicy

Learner = type("Learner", (), {})
Pair = namedtuple("Pair", "a b")
Other = namedtuple("Other", "a b")
STATE = Pair({"weight": jnp.ones((2, 3)), "count": jnp.int32(0)}, ())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (STATE.a, r"Learner\.update must return a state and a dictionary of metrics, got a dict$"),
        ((STATE, jnp.ones(())), "got a Pair and a "),
        ((STATE._replace(a={"weight": jnp.ones((2, 3))}), {}), r"\.a\['count'\] is missing"),
        ((STATE._replace(b=(jnp.ones(()),)), {}), r"\.b\[0\] is not in the state"),
        (
            (STATE._replace(a={**STATE.a, "weight": jnp.ones(3)}), {}),
            r"\.a\['weight'\] must be float32\[2,3\], got float32\[3\]",
        ),
        ((STATE._replace(a={**STATE.a, "count": 1.5}), {}), r"must be int32\[\], got a float"),
        ((Other(*STATE), {}), "has another class"),
        ((STATE, {"loss": jnp.ones(4)}), r"single numbers: 'loss' is float32\[4\]"),
        ((STATE, {"loss": "low"}), "'loss' is a str"),
    ],
)
def test_an_answer_of_another_form_is_refused(answer, message):
    with pytest.raises(InputError, match=message):
        require_answer(Learner(), STATE, answer)


def test_what_keeps_the_form_is_given_back_traced_too():
    def update(state):
        answer = jax.tree.map(lambda x: 2 * x, state), {"loss": state.a["weight"].sum(), "one": 1.0}
        return require_answer(Learner(), state, answer)

    after, metrics = jax.jit(update)(STATE)
    assert float(metrics["loss"]) == 6.0
    assert float(after.a["weight"].sum()) == 12.0


def of(answer):
    """A learner whose policy is the answer of a function of its state."""
    return type("Odd", (BC,), {"policy": lambda _, state: answer(state)})()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: jnp.tanh, r"Odd\.policy must .* has no initial_carry, sent$"),
        (lambda _: ConstantPolicy(jnp.ones(3)), r"the shape \(2,\), .* of a, b, got \(3,\)"),
        (
            lambda state: state.a["weight"] @ jnp.ones(2),
            r"cannot be compiled: .*3,\) and \(2,",
        ),
        (lambda state: state.a["wait"], "there is no 'wait'; its state holds"),
    ],
)
def test_a_policy_that_cannot_act_is_refused_by_what_it_lacks(answer, message):
    channels = [Channel(name, "1", 0.0, 1.0) for name in "xyzab"]
    spec = Spec(obs=(*channels[:3],), action=(*channels[3:],), cost=(), dt=1.0, horizon=9)
    with pytest.raises(InputError, match=message):
        require_policy(of(answer), STATE, spec)


class Forgetful(BC):
    """Behaviour cloning whose update forgets the metrics."""

    def update(self, state, batch, key):
        return super().update(state, batch, key)[0]


def test_the_laws_say_so_too():
    laws = algorithm_laws(lambda: sized(Forgetful(), hidden=(4,), batch_size=8))
    with pytest.raises(InputError, match=r"Forgetful\.update must return a state and a dictionary"):
        laws["update_is_pure"]()


class Crooked(BC):
    """Behaviour cloning with a product of matrices that do not fit."""

    def learn(self, state, rows, key):
        state, metrics = super().learn(state, rows, key)
        too_long = jnp.ones(rows.obs.shape[-1] + 1)
        return state, {**metrics, "level": jnp.mean(rows.obs @ too_long)}


def test_arrays_that_do_not_fit_are_reported_with_the_line_and_the_shapes_of_the_rows():
    """Row E03: shapes are checked while a program is traced."""
    laws = algorithm_laws(lambda: sized(Crooked(), hidden=(4,), batch_size=8))
    message = (
        r"^Crooked\.update cannot be compiled, test_contract\.py line \d+ "
        r"\(`return state, .* @ too_long\)}`\): .*\(4,\) and \(5,\).*; "
        r"its rows are obs float32\[1,8,4\], .*action float32\[1,8,2\]"
    )
    with pytest.raises(InputError, match=message) as refused:
        laws["update_is_pure"]()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("use", [jnp.ones, range, lambda n: jax.random.split(jax.random.key(0), n)])
def test_a_number_that_decides_a_shape_must_be_static(use):
    class Many(BC):
        """Behaviour cloning whose networks depend on a number that is traced."""

        members: int = 2

        def fresh(self, spec, key):
            use(self.members)
            return super().fresh(spec, key)

    laws = algorithm_laws(lambda: sized(Many(), hidden=(4,), batch_size=8))
    message = r"^Many\.fresh cannot be compiled, test_contract.py line \d+ .* a shape static"
    with pytest.raises(InputError, match=message):
        laws["update_is_pure"]()


SLIPS = {
    "a name that the state does not have": (
        lambda state, rows: state.with_averaged_targets("value", tau=0.1),
        r"`\): there is no 'value'; its state holds the parameters actor and the targets "
        r"\(none\); its rows",
    ),
    "a name that rows do not have": (
        lambda state, rows: rows.observation,
        r"`\): 'UnitRows' object has no attribute 'observation'; its rows",
    ),
    "a field that it does not read": (
        lambda state, rows: rows.cost.mean(),
        r"no attribute 'mean': a field that is not among `reads` is None, and so may be the mask",
    ),
    "a decision by a number": (
        lambda state, rows: state if rows.obs.mean() > 0 else rows,
        r"bool\[\]: use jnp\.where in place of Python's `if`, .*; its rows",
    ),
}


@pytest.mark.parametrize(("slip", "message"), SLIPS.values(), ids=SLIPS)
def test_the_usual_slips_are_reported_with_their_line(slip, message):
    class Slipped(BC):
        """Behaviour cloning with a mistake."""

        def learn(self, state, rows, key):
            slip(state, rows)
            return super().learn(state, rows, key)

    laws = algorithm_laws(lambda: sized(Slipped(), hidden=(4,), batch_size=8))
    line = r"^Slipped\.update cannot be compiled, test_contract\.py line \d+ "
    with pytest.raises(InputError, match=line + ".*" + message):
        laws["update_is_pure"]()


class Unmasked(BC):
    """Behaviour cloning that averages over masked rows too."""

    def update(self, state, batch, key):
        masked = batch.mask.astype(jnp.float32) if batch.mask is not None else jnp.ones(())
        kept = jnp.mean(masked)
        slower = dataclasses.replace(self, learning_rate=self.learning_rate * kept)
        return BC.update(slower, state, batch, key)


def test_masked_rows_that_weigh_in_a_mean_break_a_law():
    law = algorithm_laws(lambda: sized(Unmasked(), hidden=(4,), batch_size=8))[
        "masked_rows_are_inert"
    ]
    with pytest.raises(AssertionError, match="masked rows have weight in a mean"):
        law()


class Bare(BC):
    """Behaviour cloning whose state is no ``LearnerState``."""

    def init(self, *given, **named):
        return STATE


class Adamless(BC):
    """Behaviour cloning that leaves its optimiser out of the state."""

    def init(self, *given, **named):
        return dataclasses.replace(super().init(*given, **named), optimisers={})


class Uncounted(BC):
    """Behaviour cloning that forgets its updates."""

    def update(self, state, batch, key):
        after, metrics = super().update(state, batch, key)
        return after.with_counters(updates=state.updates), metrics


class Drifting(BC):
    """Behaviour cloning that learns the maps too."""

    def update(self, state, batch, key):
        after, metrics = super().update(state, batch, key)
        maps = jax.tree.map(lambda x: x + x, after.preparation)  # a flag stays a flag
        return dataclasses.replace(after, preparation=maps), metrics


class Local(BC):
    """Behaviour cloning that prepares from its own rows, whatever it is given."""

    def init(self, spec, statistics, key, *, preparation=None, context=None):
        return super().init(spec, statistics, key, context=context)


class Proud(BC):
    """Behaviour cloning whose first network hangs on the log's rewards."""

    def init(self, spec, statistics, key, *, preparation=None, context=None):
        state = super().init(spec, statistics, key, preparation=preparation, context=context)
        shifted = jax.tree.map(lambda x: x + statistics.reward.mean, state.parameters)
        return dataclasses.replace(state, parameters=shifted)


@pytest.mark.parametrize(
    ("kind", "law", "words"),
    [
        (Bare, "the_state_has_named_parts", "init must return a LearnerState, got a Pair"),
        (
            Adamless,
            "the_state_has_named_parts",
            "actor: parameters and optimisers must have the same",
        ),
        (
            Uncounted,
            "an_update_changes_no_map_and_no_context_and_is_counted",
            "by one, from 0 to 1",
        ),
        (
            Drifting,
            "an_update_changes_no_map_and_no_context_and_is_counted",
            "must not change preparation",
        ),
        (Local, "a_preparation_may_be_given", "init must not read the statistics when a"),
        (Proud, "a_preparation_may_be_given", "init must not read the statistics when a"),
    ],
)
def test_a_state_that_breaks_the_contract_breaks_a_law(kind, law, words):
    laws = algorithm_laws(lambda: sized(kind(), hidden=(4,), batch_size=8))
    with pytest.raises(AssertionError, match=words):
        laws[law]()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_single_width_is_named_not_iterated(name):
    learner = sized(ALGORITHMS[name](), hidden=32)
    words = r"\.networks\.hidden must be one or more integers of at least 1, such as \(.*\), got 32"
    with pytest.raises(ValueError, match=rf"{ALGORITHMS[name].__name__}{words}"):
        learner.validate()
    assert sized(ALGORITHMS[name](), hidden=[32, 16]).networks.hidden == (32, 16)


def test_a_name_of_the_learner_itself_is_not_that_of_its_model():
    learner = sized(ALGORITHMS["mobile"](), variant="original", decay_updates=7, members=3)
    assert (learner.variant, learner.decay_updates, learner.model.members) == ("original", 7, 3)
    assert (learner.model.variant, learner.model.decay_updates) == ("gaussian", WHOLE_RUN)
