import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.costs import MultiplierState, pid_multiplier_init, pid_multiplier_step
from neorl_core.testing import Edge, Refusal, Row, assert_close, mapped, reals, rows

DELAY = 2
GAIN = reals(0, 2)
GAINS = st.fixed_dictionaries(
    {
        "kp": GAIN,
        "ki": GAIN,
        "kd": GAIN,
        "smoothing": reals(0, 1),
        "max_integral": reals(0.5, 20),
        "max_multiplier": reals(0.5, 50),
    }
)


def multipliers(costs, limit, **gains):
    """The multipliers along a sequence of costs."""
    state = pid_multiplier_init(costs[0], delay=DELAY)
    history = []
    for cost in costs:
        state, multiplier = pid_multiplier_step(state, cost, limit, **gains)
        history.append(multiplier)
    return jnp.stack(history), state


def multipliers_by_hand(
    costs, limit, *, kp, ki, kd, smoothing, max_integral, max_multiplier, first=None
):
    error, integral = 0.0, 0.0
    averages = [costs[0] if first is None else first] * (DELAY + 1)
    history = []
    for cost in costs:
        error = smoothing * error + (1 - smoothing) * (cost - limit)
        averages.append(smoothing * averages[-1] + (1 - smoothing) * cost)
        integral = min(max(integral + ki * (cost - limit), 0.0), max_integral)
        rise = max(averages[-1] - averages[-1 - DELAY], 0.0)
        history.append(min(max(kp * error + integral + kd * rise, 0.0), max_multiplier))
    return np.asarray(history), (error, np.asarray(averages[-DELAY - 1 :]), integral)


def oracle(costs, limit, **gains):
    history, state = multipliers_by_hand(costs, limit, **gains)
    return history, MultiplierState(*state)


def stays_inside_its_ceiling(costs, limit, **gains):
    history, state = mapped(multipliers, costs, limit, **gains)
    assert np.all(np.asarray(history) >= 0)
    assert np.all(np.asarray(history) <= gains["max_multiplier"] * (1 + 1e-6))
    assert np.all(np.asarray(state.integral) <= gains["max_integral"] * (1 + 1e-6))
    assert np.all(np.asarray(state.integral) >= 0)


def only_the_excess_counts(costs, limit, **gains):
    shifted, _ = mapped(multipliers, costs + 8, limit + 8, **gains)
    assert_close(shifted, mapped(multipliers, costs, limit, **gains)[0], rtol=1e-3, atol=1e-4)


def init_by_hand(cost, *, delay):
    return MultiplierState(np.zeros(()), np.full(delay + 1, cost), np.zeros(()))


def at_rest_it_stays_at_rest(cost, *, delay):
    state = mapped(pid_multiplier_init, cost, delay=delay)
    after, multiplier = mapped(pid_multiplier_step, state, cost, cost, kp=1.0, ki=1.0, kd=1.0)
    assert_close(multiplier, np.zeros(3))
    assert_close(jax.tree.leaves(after), jax.tree.leaves(state), rtol=1e-6)


def fresh(cost):
    return pid_multiplier_init(cost, delay=DELAY)


def one_step_by_hand(state, cost, limit, **gains):
    history, after = multipliers_by_hand(np.asarray([cost]), limit, first=state.cost[-1], **gains)
    return MultiplierState(*after), history[0]


def a_pure_integrator_adds(state, cost, limit, **gains):
    options = {"kp": 0.0, "ki": 0.5, "kd": 0.0, "max_integral": 1e3, "max_multiplier": 1e3}
    _, multiplier = mapped(pid_multiplier_step, state, cost, limit, **options)
    assert_close(multiplier, np.maximum((cost - limit) / 2, 0))


NO_GAIN = {"kp": 0.0, "ki": 0.0, "kd": 0.0}
DEFAULTS = {"smoothing": 0.95, "max_integral": 10.0, "max_multiplier": 100.0}
STATE = pid_multiplier_init(jnp.zeros(()), delay=1)
ONE_STEP = (STATE, jnp.ones(()), jnp.ones(()))


def one_number(name):
    return f"{name} must be one number, got shape (2,); index it, or use jax.vmap for several"


ROWS = [
    Row(
        multipliers,
        name="pid_multiplier_step",
        sample=st.tuples(rows(5), rows()),
        options=GAINS,
        oracle=oracle,
        laws=[stays_inside_its_ceiling, only_the_excess_counts],
        edges=[
            Edge((np.zeros(5), np.zeros(())), {**NO_GAIN, **DEFAULTS}),
            Edge((np.full(5, 1e6), np.zeros(())), {**DEFAULTS, "kp": 1.0, "ki": 1.0, "kd": 1.0}),
        ],
    ),
    Row(
        pid_multiplier_step,
        sample=st.tuples(
            rows().map(lambda cost: jax.tree.map(np.asarray, jax.vmap(fresh)(cost))), rows(), rows()
        ),
        options=GAINS,
        oracle=one_step_by_hand,
        exempt={"slope": "the oracle takes all of a fresh state from its cost"},
        laws=[a_pure_integrator_adds],
        refuses=[
            *(
                Refusal(
                    f"{name} must be finite and not negative", ONE_STEP, {**NO_GAIN, name: -1.0}
                )
                for name in ("kp", "ki", "kd")
            ),
            Refusal(
                "max_integral must be finite and positive",
                ONE_STEP,
                {**NO_GAIN, "max_integral": 0.0},
            ),
            Refusal(
                "max_multiplier must be finite and positive",
                ONE_STEP,
                {**NO_GAIN, "max_multiplier": -1.0},
            ),
            Refusal("smoothing must be in [0, 1]", ONE_STEP, {**NO_GAIN, "smoothing": 2.0}),
            *(
                Refusal(one_number(name), ONE_STEP, {**NO_GAIN, name: jnp.ones(2)})
                for name in ("kp", "ki", "kd", "smoothing", "max_integral", "max_multiplier")
            ),
            *(
                Refusal(one_number(name), args, NO_GAIN)
                for name, args in (
                    ("cost", (STATE, jnp.ones(2), jnp.ones(()))),
                    ("limit", (STATE, jnp.ones(()), jnp.ones(2))),
                    ("state.error", (STATE._replace(error=jnp.ones(2)), *ONE_STEP[1:])),
                    ("state.integral", (STATE._replace(integral=jnp.ones(2)), *ONE_STEP[1:])),
                )
            ),
            Refusal(
                "state.cost must have the axes (history), got shape (2, 2); for a batch of them "
                "use jax.vmap",
                (STATE._replace(cost=jnp.ones((2, 2))), *ONE_STEP[1:]),
                NO_GAIN,
            ),
            Refusal(
                "state.cost needs a first axis of length 2 or more, got shape (1,); "
                "check how it was sliced",
                (STATE._replace(cost=jnp.ones(1)), *ONE_STEP[1:]),
                NO_GAIN,
            ),
        ],
    ),
    Row(
        pid_multiplier_init,
        sample=st.tuples(rows()),
        options={"delay": 3},
        oracle=init_by_hand,
        laws=[at_rest_it_stays_at_rest],
        edges=[Edge((np.zeros(()),), {"delay": 1})],
        refuses=[
            Refusal(
                "delay must be 1 or more, got 0; 1 compares with the step before",
                (jnp.ones(()),),
                {"delay": 0},
            ),
            Refusal("delay must be", (jnp.ones(()),), {"delay": 1.0}),
            Refusal(one_number("cost"), (jnp.ones(2),), {"delay": 1}),
        ],
    ),
]
