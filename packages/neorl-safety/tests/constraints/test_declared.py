"""Every kind as records with units: read, written, worded, and refused where nothing remains."""

import itertools
import json

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import InputError
from neorl_safety.constraints import (
    KINDS,
    Situation,
    barrier_records,
    constraints_from_dict,
    constraints_from_toml,
    constraints_to_dict,
    declared_constraints,
    describe_constraints,
    spec_channels,
)

DOCUMENT = """
[[constraint]]
kind = "rate"
channel = "valve"
unit = "%"
up = 0.5
down = inf

[[constraint]]
kind = "interlock"
obs = "temperature"
obs_unit = "K"
below = -inf
above = 380.0
channel = "valve"
unit = "%"
low = 0.0
high = 10.0

[[constraint]]
kind = "linear"
sum = {valve = {value = 0.5, per = "%"}, jacket = {value = 1.0, per = "K"}}
at_most = 340.0
plus = {level = {value = -5.0, per = "m"}}

[[constraint]]
kind = "deadband"
channel = "valve"
unit = "%"
width = 0.5

[[constraint]]
kind = "rest"
channel = "jacket"
seconds = 120.0
"""
MODEL = (
    np.array([[0.9, 0.0], [0.0, 0.8]]),
    np.array([[0.01, 0.0], [0.05, 0.2]]),
    np.array([0.0, 5.0]),
)


def lowered(constraints, kind, obs=(1.0, 350.0), start=(50.0, 300.0), request=None, held=np.inf):
    start = jnp.array(start)
    request = start if request is None else jnp.array(request)
    situation = Situation(
        jnp.array(obs), start, jnp.asarray(60.0), request, jnp.full((2,), held, jnp.float32), start
    )
    return KINDS[kind].lower(constraints.further[kind], situation)


def test_a_toml_document_is_worded_and_survives_json(spec):
    constraints = constraints_from_toml(DOCUMENT, spec)
    assert describe_constraints(constraints)[2:] == [
        "valve rises by at most 0.5 % per second",
        "jacket may change at any rate",
        "valve between 0 and 10 % while temperature is above 380 K",
        "0.5 valve + 1 jacket at most 340 - 5 level",
        "valve moves by at least 0.5 % or holds",
        "jacket rests for 120 s after every move",
    ]
    document = json.loads(json.dumps(constraints_to_dict(constraints), allow_nan=False))
    again = constraints_from_dict(document)
    chex.assert_trees_all_equal(again, constraints)
    assert again.obs == constraints.obs


def test_each_kind_means_what_it_says(spec):
    constraints = constraints_from_toml(DOCUMENT, spec)
    free, tripped = (
        lowered(constraints, "interlock", obs=(1.0, temperature)) for temperature in (380.0, 380.5)
    )
    assert free.high.tolist() == [np.inf, np.inf]
    assert tripped.high.tolist() == [10.0, np.inf]
    assert lowered(constraints, "interlock", obs=(1.0, np.nan)).high[0] == 10.0
    rows = lowered(constraints, "linear", obs=(2.0, np.nan))
    assert (rows.rows.tolist(), rows.bounds.tolist()) == ([[0.5, 1.0]], [330.0])
    assert not rows.bad[0]  # the temperature takes no part
    assert lowered(constraints, "linear", obs=(np.nan, 350.0)).bad[0]
    near, far = (
        lowered(constraints, "deadband", request=(50.0 + move, 310.0)) for move in (0.4, 0.6)
    )
    assert (near.low[0], near.high[0]) == (50.0, 50.0)
    assert np.isinf([far.low[0], far.high[0], near.high[1]]).all()
    early, late = (lowered(constraints, "rest", held=seconds) for seconds in (119.0, 120.0))
    assert (early.low[1], early.high[1]) == (300.0, 300.0)
    assert np.isinf(late.high).all()


@pytest.mark.parametrize("steps", [1, 3])
def test_a_barrier_row_is_the_condition_on_the_model(spec, steps):
    """Against the model run forward in NumPy: the row holds just where the condition does."""
    records = barrier_records(
        spec_channels(spec), MODEL, keep={"temperature": 2.0}, at_most=700.0, decay=0.3,
        margin=1.5, steps=steps,
    )  # fmt: skip
    constraints = declared_constraints(spec, records)
    rng = np.random.default_rng(0)
    a, b, c = MODEL
    agree = []
    for _ in range(50):
        x = rng.uniform([0, 300], [2, 400])
        u = rng.uniform([0, 280], [100, 320])
        row = lowered(constraints, "barrier", obs=x)
        after = x
        for _ in range(steps):
            after = a @ after + b @ u + c
        ahead, now = 700.0 - 2 * after[1], 700.0 - 2 * x[1]
        excess = float(row.rows[0] @ jnp.asarray(u, jnp.float32) - row.bounds[0])
        np.testing.assert_allclose(-excess, ahead - 0.7 * now - 1.5, atol=2e-3)
        agree.append(excess <= 0)
    assert 5 < sum(agree) < 45
    words = describe_constraints(declared_constraints(spec, records))[-1]
    assert words.startswith("-2 temperature + 700 stays above zero")


def one(kind, **fields):
    return {"kind": kind, **fields}


def row(valve, at_most, jacket=0.0):
    parts = {"valve": {"value": valve, "per": "%"}}
    if jacket:
        parts["jacket"] = {"value": jacket, "per": "K"}
    return one("linear", sum=parts, at_most=at_most, plus={})


def lock(low, high, above=350.0):
    names = {"obs": "temperature", "obs_unit": "K", "channel": "valve", "unit": "%"}
    return one("interlock", **names, below=-np.inf, above=above, low=low, high=high)


REFUSED = {
    "the box and the constraint '1 valve at least 101'": [row(-1.0, -101.0)],
    "both '1 valve at most 10' and '1 valve at least 20'": [row(1.0, 10.0), row(-1.0, -20.0)],
    r"both '1 valve \+ 1 jacket at most 290' and '1 valve \+ 0.5 jacket at least 160'": [
        row(1.0, 290.0, 1.0), row(-1.0, -160.0, -0.5)
    ],
    r"'1 valve at least 30', '1 jacket at most 300', '-0.4 valve \+ 1 jacket at least 292'": [
        row(1.0, 90.0), row(-1.0, -30.0),
        one("linear", sum={"jacket": {"value": 1.0, "per": "K"}}, at_most=300.0, plus={}),
        row(0.4, -292.0, -1.0),
    ],
    r"the actuator of valve \(0 to 100\) and the interlock 'valve between 120 and 130": [
        lock(120.0, 130.0)
    ],
    "both interlocks 'valve between 0 and 10.*' and 'valve between 20": [
        lock(0.0, 10.0), lock(20.0, 30.0, above=370.0)
    ],
    "unit is 'bar', but valve is in '%'; convert": [
        one("deadband", channel="valve", unit="bar", width=1.0)
    ],
    "unknown action channel 'valv'; did you mean 'valve'": [
        one("rest", channel="valv", seconds=1.0)
    ],
    "seconds must be positive, got -1": [one("rest", channel="valve", seconds=-1.0)],
    "width is 1e-40, below the smallest": [
        one("deadband", channel="valve", unit="%", width=1e-40)
    ],
    "at_most must be finite in float32": [row(1.0, 1e39)],
    "sum names no action": [one("linear", sum={}, at_most=1.0, plus={})],
    "give a limit, below or above": [lock(0.0, 1.0, above=np.inf)],
    "low 5.0 is above high 1.0": [lock(5.0, 1.0)],
    'a number or {"value": number': [
        one("linear", sum={"valve": {"value": 1.0}}, at_most=1.0)
    ],
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_by_name(spec, message):
    with pytest.raises(InputError, match=message):
        declared_constraints(spec, REFUSED[message])


def test_what_is_only_just_possible_is_accepted(spec):
    declared_constraints(spec, [row(1.0, 10.0), row(-1.0, -10.0), row(-1.0, -10.0, 0.0)])
    declared_constraints(spec, [lock(0.0, 10.0), lock(10.0, 30.0, above=370.0)])
    opposite = {**lock(20.0, 30.0, above=np.inf), "below": 340.0}
    declared_constraints(spec, [lock(0.0, 10.0), opposite])  # never tripped together


def test_toml_that_is_none_is_refused(spec):
    with pytest.raises(InputError, match="not TOML"):
        constraints_from_toml("[[constraint", spec)
    with pytest.raises(InputError, match="the tables limits; expected"):
        constraints_from_toml("[limits]\na = 1", spec)
    with pytest.raises(InputError, match="with two brackets"):
        constraints_from_toml('[constraint]\nkind = "box"', spec)
    records = barrier_records(spec_channels(spec), MODEL, keep={"level": 1}, at_most=1, decay=0.5)
    with pytest.raises(InputError, match="no action changes the prediction"):
        declared_constraints(spec, [{**records[0], "next_by_action": {}}])


def most_room(rows, bounds):
    """The largest ``t`` with ``rows @ u + t <= bounds``: at a point where three of them meet."""
    best = -np.inf
    for three in map(list, itertools.combinations(range(len(rows)), 3)):
        matrix = np.column_stack([rows[three], np.ones(3)])
        if abs(np.linalg.det(matrix)) > 1e-9:
            *u, t = np.linalg.solve(matrix, bounds[three])
            if (rows @ u + t <= bounds + 1e-9).all():
                best = max(best, t)
    return best


def test_rows_are_refused_just_where_they_leave_nothing(spec):
    """Against the corners of every polygon; three to five rows in two actions."""
    rng = np.random.default_rng(5)
    low, span = np.array([0.0, 280.0]), np.array([100.0, 40.0])
    answers = []
    for _ in range(30):
        drawn = rng.normal(size=(rng.integers(3, 6), 2))
        right = drawn @ [0.5, 0.5] + rng.normal(0.1, 0.3, len(drawn))
        sides = np.concatenate([drawn, np.eye(2), -np.eye(2)])
        room = most_room(sides, np.concatenate([right, [1, 1, 0, 0]]))
        scaled, at_most = drawn / span, right + drawn @ (low / span)
        records = [
            row(float(a[0]), float(b), float(a[1])) for a, b in zip(scaled, at_most, strict=True)
        ]
        try:
            declared_constraints(spec, records)
        except InputError:
            answers.append((room, False))
        else:
            answers.append((room, True))
    assert all(accepted == (room > 0) for room, accepted in answers if abs(room) > 1e-4)
    assert 5 < sum(accepted for _, accepted in answers) < len(answers) - 5
