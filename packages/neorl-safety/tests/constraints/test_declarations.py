"""Limits as a plant engineer declares them: what may be left out, what is refused, and models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, InputError, Spec
from neorl_core.control import ConstantPolicy
from neorl_safety.constraints import (
    Barrier,
    constraints_from_dict,
    constraints_from_toml,
    constraints_to_dict,
    declared_constraints,
    describe_constraints,
    identified_model,
)
from neorl_safety.filters import Context, Flag, filter_action
from neorl_safety.guards import guard

BOILER = Spec(
    obs=(
        Channel("pressure", "bar", 0.0, 80.0),
        Channel("level", "m", 0.0, 2.0),
        Channel("flue", "degC", 0.0, 600.0),
    ),
    action=(Channel("fuel", "kg/h", 0.0, 500.0), Channel("feedwater", "t/h", 0.0, 60.0)),
    cost=(),
    dt=10.0,
    horizon=100,
)
DOCUMENT = """
[[constraint]]
kind = "range"
channel = "fuel"
low = 40.0

[[constraint]]
kind = "rate"
channel = "fuel"
up = 120.0
per = "min"

[[constraint]]
kind = "rate"
channel = "feedwater"
up = 3.0
down = 6.0
unit = "t/h/min"

[[constraint]]
kind = "while"
obs = "level"
below = 0.6
channel = "fuel"
high = 0.0

[[constraint]]
kind = "while"
obs = "flue"
above = 480.0
channel = "fuel"
high = 200.0

[[constraint]]
kind = "sum"
sum = { fuel = 0.1, feedwater = 1.0 }
at_most = 95.0
at_least = 4.0
"""
WORDS = [
    "fuel between 40 and 500 kg/h",
    "feedwater between 0 and 60 t/h",
    "fuel rises by at most 2 kg/h per second",
    "feedwater rises by at most 0.05 t/h per second and falls by at most 0.1 t/h per second",
    "fuel at 0 kg/h while level is below 0.6 m",
    "fuel between 0 and 200 kg/h while flue is above 480 degC",
    "0.1 fuel + 1 feedwater at most 95",
    "0.1 fuel + 1 feedwater at least 4",
]


def test_a_rate_per_minute_is_not_shown_per_second():
    """5 kg/h per minute would be 0.0833333 kg/h per second."""
    document = '[[constraint]]\nkind = "rate"\nchannel = "fuel"\nup = 5.0\ndown = 7.0\nper = '
    for per, word in (("min", "minute"), ("h", "hour")):
        words = describe_constraints(constraints_from_toml(f'{document}"{per}"', BOILER))
        expected = f"fuel rises by at most 5 kg/h per {word} and falls by at most 7 kg/h per {word}"
        assert expected in words


def test_the_boiler_is_declared_without_one_field_too_many():
    limits = constraints_from_toml(DOCUMENT, BOILER)
    assert describe_constraints(limits) == WORDS
    again = constraints_from_dict(constraints_to_dict(limits))
    assert describe_constraints(again) == WORDS
    np.testing.assert_allclose(limits.action.rate_up, [2.0, 0.05])
    assert np.isinf(limits.action.rate_down[0])


def test_the_burner_trips_to_zero_beside_its_minimum_and_goes_back_at_its_rate():
    limits = constraints_from_toml(DOCUMENT, BOILER)
    step = jax.jit(filter_action)

    def after(level, fuel):
        context = Context(
            jnp.array([40.0, level, 300.0]), jnp.array([fuel, 30.0]), jnp.float32(10.0),
            jnp.array([100.0, 30.0]),
        )  # fmt: skip
        action, report = step(limits, context, jnp.array([300.0, 30.0]))
        assert not int(report.flags) & (Flag.ROWS_INFEASIBLE | Flag.BAD_CONSTRAINT)
        return action.tolist()

    assert after(0.5, 250.0) == [0.0, 30.0]
    assert after(0.5, 0.0) == [0.0, 30.0]
    assert after(1.0, 0.0) == [20.0, 30.0]
    assert after(1.0, 300.0) == [300.0, 30.0]


def one(kind, **fields):
    return {"kind": kind, **fields}


REFUSED = {
    "above is 99 m, outside the measuring range of level, 0 to 2 m; check the unit": [
        one("while", obs="level", above=99.0, channel="fuel", high=0.0)
    ],
    "width is 700 kg/h, more than the range of fuel, 0 to 500 kg/h": [
        one("deadband", channel="fuel", width=700.0)
    ],
    "give low or high, the range of fuel while the interlock is tripped": [
        one("while", obs="level", below=0.5, channel="fuel")
    ],
    "give up or down, or both; one that is missing means no limit": [one("rate", channel="fuel")],
    "give low or high, or both": [one("range", channel="fuel")],
    "give at_most, or at_least, or both": [one("sum", sum={"fuel": 1.0})],
    "per must be the time unit of the rate": [one("rate", channel="fuel", up=1.0, per="d")],
    "unit is 'kg/min', but fuel is in 'kg/h'": [one("rate", channel="fuel", up=1.0, unit="kg/min")],
    "sum of fuel: coefficient must be a number, got str": [
        one("sum", sum={"fuel": "1"}, at_most=1.0)
    ],
    r"constraint 1 \(range\) must have the fields \['channel'\] and may have "
    r"\['high', 'low', 'unit'\]": [one("range", channel="fuel", lo=3.0)],
    "known: range, while, sum, keep_below, box": [one("totaliser", channel="fuel")],
    "unknown kind 'ranges'; did you mean 'range'": [one("ranges", channel="fuel")],
    r"got \['channel', 'ups'\]; 'ups': did you mean 'up'\?": [one("rate", channel="fuel", ups=1.0)],
    "this kind needs a model of the plant, identified from a log": [
        one("keep_below", obs="flue", at_most=500.0)
    ],
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_slip_is_refused_by_name(message):
    with pytest.raises(InputError, match=message):
        declared_constraints(BOILER, REFUSED[message])


def test_both_dialects_mean_the_same_for_drawn_numbers():
    """What is left out equals what the strict document writes in full."""
    rng = np.random.default_rng(6)
    for _ in range(40):
        low, high = np.sort(rng.uniform(0, 500, 2))
        above, most = rng.uniform(0.1, 1.9), rng.uniform(20, 90)
        minutes, factor = [("s", 1.0), ("min", 60.0), ("h", 3600.0)][rng.integers(3)]
        rise = rng.uniform(0.1, 5)
        short = [
            one("range", channel="fuel", low=low),
            one("rate", channel="fuel", down=rise * factor, per=minutes),
            one("while", obs="level", above=above, channel="fuel", low=high),
            one("sum", sum={"feedwater": 1.0, "fuel": 0.01}, at_least=-most, plus={"level": 2.0}),
        ]
        per = {"feedwater": {"value": -1.0, "per": "t/h"}, "fuel": {"value": -0.01, "per": "kg/h"}}
        full = [
            one("box", channel="fuel", unit="kg/h", low=low, high=500.0),
            one("rate", channel="fuel", unit="kg/h", up=None, down=rise),
            one("interlock", obs="level", obs_unit="m", below=None, above=above, channel="fuel",
                unit="kg/h", low=high, high=500.0),
            one("linear", sum=per, at_most=most, plus={"level": {"value": -2.0, "per": "m"}}),
        ]  # fmt: skip
        first, second = (declared_constraints(BOILER, records) for records in (short, full))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), first, second)


TANK = Spec(
    obs=(Channel("T", "K", 280.0, 420.0), Channel("load", "kW", 0.0, 20.0)),
    action=(Channel("heat", "kW", 0.0, 100.0),),
    cost=(),
    dt=10.0,
    horizon=200,
)


def plant(x, u, noise):
    """A heated tank beside its surroundings, with a load that wanders."""
    temperature = 0.95 * x[0] + 0.05 * 290.0 + 0.06 * u - 0.02 * x[1] + noise[0]
    return np.array([temperature, np.clip(x[1] + noise[1], 0.0, 20.0)])


def driven(rng, policy, count):
    x, obs, action = np.array([320.0, 5.0]), [], []
    for _ in range(count):
        u = policy(x)
        obs.append(x)
        action.append([u])
        x = plant(x, u, rng.normal(0, [0.15, 0.3]))
    return np.array(obs), np.array(action)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    parts = [driven(rng, lambda x: rng.uniform(0, 100), 400) for _ in range(5)]
    obs, action = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    obs[37] = np.nan
    return identified_model(obs, action, np.arange(0, 2000, 400))


def test_keep_below_takes_its_model_and_its_error_from_the_log(model):
    np.testing.assert_allclose(model.state[0], [0.95, -0.02], atol=0.01)
    np.testing.assert_allclose(model.effect[0], [0.06], atol=0.003)
    limits = declared_constraints(TANK, [one("keep_below", obs="T", at_most=360.0)], model=model)
    barrier = limits.further["barrier"]
    assert isinstance(barrier, Barrier)
    # Of normal errors of deviation 0.15 K, 5 % exceed 0.247 K.
    assert float(barrier.margin[0]) == pytest.approx(0.247, abs=0.05)
    assert 0.03 < float(barrier.missed[0]) <= 0.05
    (words,) = describe_constraints(limits)[-1:]
    assert words.startswith(
        "T at most 360 K, by a linear model: its prediction one step ahead keeps 50 % of the "
    )
    assert "which the error exceeded in" in words
    again = constraints_from_dict(constraints_to_dict(limits))
    assert describe_constraints(again)[-1] == words


def test_the_plant_stays_below_and_above_behind_barriers_from_its_log(model):
    ends = [one("keep_below", obs="T", at_most=360.0, at_least=310.0)]
    limits = declared_constraints(TANK, ends, model=model)
    assert len(limits.further["barrier"].margin) == 2
    rng = np.random.default_rng(2)
    for wanted, bare in ((100.0, 370.0), (0.0, 300.0)):
        safe = guard(
            ConstantPolicy(jnp.array([wanted])), limits, ConstantPolicy(jnp.array([50.0])), TANK
        )
        step = jax.jit(safe.__call__)
        carry = [safe.initial_carry()]

        def acting(x, carry=carry, step=step):
            carry[0], action = step(carry[0], jnp.asarray(x, jnp.float32))
            return float(action[0])

        obs, _ = driven(rng, acting, 300)
        alone, _ = driven(rng, lambda x, wanted=wanted: wanted, 300)
        assert alone[:, 0].max() > bare if wanted else alone[:, 0].min() < bare
        outside = (obs[:, 0] > 360.0) | (obs[:, 0] < 310.0)
        assert outside.mean() < 0.1  # the error of a step exceeds the margin in 5 % of them
        assert obs[:, 0].max() < 361.0
        assert obs[:, 0].min() > 309.0


def test_records_after_keep_below_keep_their_numbers_in_messages(model):
    records = [
        one("keep_below", obs="T", at_most=360.0, at_least=310.0),
        one("rate", channel="heat", ups=1.0),
    ]
    with pytest.raises(InputError, match=r"^constraint 2 \(rate"):
        declared_constraints(TANK, records, model=model)


def test_a_log_that_holds_no_model_is_refused_with_what_is_missing():
    rng = np.random.default_rng(3)
    with pytest.raises(InputError, match=r"12 usable pairs of rows; .* at least 40"):
        identified_model(rng.normal(size=(13, 2)), rng.normal(size=(13, 1)), [0])
    obs, action = rng.normal(size=(400, 2)), rng.normal(size=(400, 1))
    blind = identified_model(obs, action, [0])
    with pytest.raises(
        InputError, match=r"actions of the log move the quantity by .* error of the model"
    ):
        declared_constraints(TANK, [one("keep_below", obs="load", at_most=15.0)], model=blind)
    with pytest.raises(InputError, match="steps must be an integer from 1 to 20, got 0"):
        declared_constraints(
            TANK, [one("keep_below", obs="T", at_most=360.0, steps=0)], model=blind
        )
