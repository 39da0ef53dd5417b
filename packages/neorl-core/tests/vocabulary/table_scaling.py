import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core import Affine, Channel, as_arrays, highs, lows, standardiser, unit_interval
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    integers,
    mapped,
    reals,
    rows,
)

ACT, OBS = 2, 3
RANGES = (Channel("level", "m", 0.0, 4.0), Channel("flow", "m3/h", -60.0, 20.0))


def there_and_back(offset, scale, physical):
    affine = Affine(offset, scale)
    scaled = affine.to_scaled(physical)
    return scaled, affine.to_physical(scaled)


def scaled_by_hand(offset, scale, physical):
    return (physical - offset) / scale, physical


def ends_of_the_range(offset, scale, physical):
    ends, _ = mapped(there_and_back, offset, scale, np.stack([offset - scale, offset + scale], 1))
    assert_close(ends, np.broadcast_to(np.asarray([[-1.0], [1.0]]), ends.shape), atol=1e-3)


def in_the_unit_interval(physical):
    scaling = unit_interval(RANGES)
    scaled = scaling.to_scaled(physical)
    # Beside the upper ends, since a number is put back as exactly as the range allows.
    back = scaling.to_physical(scaled)
    return scaled, jnp.stack([back, jnp.asarray(highs(RANGES), back.dtype)])


def between_the_ends(physical):
    share = (physical - np.asarray(lows(RANGES))) / np.subtract(highs(RANGES), lows(RANGES))
    return 2 * share - 1, np.stack([physical, np.asarray(highs(RANGES))])


def ends_become_plus_and_minus_one(physical):
    for ends, expected in ((lows(RANGES), -1.0), (highs(RANGES), 1.0)):
        row = np.broadcast_to(np.asarray(ends, np.float32), physical.shape)
        assert_close(mapped(in_the_unit_interval, row)[0], np.full(row.shape, expected))


def numbers_and_arrays(x, count):
    return as_arrays({"x": x, "more": [count, 2, 0.5, True]})


def the_same_in_numpy(x, count):
    return {"x": x, "more": [count, np.int64(2), np.float64(0.5), np.bool_(True)]}


def twice_is_once(x, count):
    once = as_arrays({"x": x, "n": 3, "share": 0.25})
    for first, second in zip(once.values(), as_arrays(once).values(), strict=True):
        assert first is second
    assert once["n"].dtype == "int32"
    assert once["share"].dtype == "float32"
    assert not once["share"].weak_type


def standardised(mean, std, span, x, *, epsilon):
    return standardiser(mean, std, span=span, epsilon=epsilon).to_scaled(x)


def standardised_by_hand(mean, std, span, x, *, epsilon):
    return np.where(
        std > epsilon * span, (x - mean) / np.where(std, std, 1), (x - mean) / epsilon / span
    )


def one_std_is_at_most_one(mean, std, span, x, *, epsilon):
    moved = mapped(standardised, mean, std, span, (mean + std)[:, None], epsilon=epsilon)
    assert np.all(np.abs(moved) <= 1 + 1e-3)


def the_unit_does_not_matter(mean, std, span, x, *, epsilon):
    """Kelvin or degrees Celsius, bar or pascal, milli or mega."""
    plain = mapped(standardised, mean, std, span, x, epsilon=epsilon)
    for factor in (2.0**-20, 2.0**20):
        scale = np.float32(factor)
        other = (array * scale for array in (mean, std, span, x))
        assert_close(mapped(standardised, *other, epsilon=epsilon), plain)
    with jax.enable_x64(True):
        wide = [array.astype(np.float64) for array in (mean, std, span, x)]
        plain = mapped(standardised, *wide, epsilon=epsilon)
        shifted = wide[0] + 273.15, *wide[1:3], wide[3] + 273.15
        assert_close(mapped(standardised, *shifted, epsilon=epsilon), plain, rtol=1e-6, atol=1e-6)


SAME = "; index or reshape one of them, nothing is broadcast here"
POSITIVE = reals(0.0625, 50)

ROWS = [
    Row(
        in_the_unit_interval,
        name="unit_interval",
        sample=st.tuples(rows(len(RANGES))),
        oracle=between_the_ends,
        laws=[ends_become_plus_and_minus_one],
        edges=[Edge((np.zeros(len(RANGES)),)), Edge((np.full(len(RANGES), 1e6),))],
        dtypes=("float32",),
        exempt={"size": "the middle of the range is taken off and put back"},
        atol=1e-5,
    ),
    Row(
        numbers_and_arrays,
        name="as_arrays",
        sample=st.tuples(rows(4), integers(low=-9, high=9)),
        oracle=the_same_in_numpy,
        laws=[twice_is_once],
        edges=[Edge((np.zeros(0), np.int32(0)))],
        exempt={
            "dtype": "a number becomes float32 whatever the arrays beside it are",
            "integers": "what it is given comes back as it is",
        },
        refuses=[
            Refusal("'x'", ("relu", 1), error=TypeError),
            Refusal("does not fit in int32", (1.0, 2**31), traced="an int of Python is known"),
        ],
    ),
    Row(
        there_and_back,
        name="Affine",
        sample=st.tuples(rows(OBS), rows(OBS, elements=POSITIVE), rows(4, OBS)),
        oracle=scaled_by_hand,
        laws=[ends_of_the_range],
        edges=[Edge((np.zeros(3), np.ones(3), np.zeros((0, 3))))],
        refuses=[
            Refusal(
                f"offset and scale must have one shape, got (3,) and (1,){SAME}",
                (jnp.ones(3), jnp.ones(1), jnp.ones(3)),
            ),
            Refusal(
                "offset must have the axes (channel), got shape (); add the missing axes",
                (jnp.ones(()), jnp.ones(()), jnp.ones(3)),
            ),
            *(
                Refusal(
                    "physical must have the 3 channels of the map along its last axis, "
                    f"got shape {shape}; check the order of its axes",
                    (jnp.ones(3), jnp.ones(3), jnp.ones(shape)),
                )
                for shape in ((3, 1), (4,), ())
            ),
            *(
                Refusal(
                    f"scale must be finite and positive, got [{text}]; check sign and unit",
                    (jnp.ones(1), jnp.asarray([scale]), jnp.ones(1)),
                    traced="a map is made before the program that uses it",
                )
                for scale, text in ((0.0, "0."), (-2.0, "-2."), (jnp.nan, "nan"))
            ),
        ],
        rtol=1e-4,
        atol=1e-4,
    ),
    Row(
        standardised,
        name="standardiser",
        sample=st.tuples(
            rows(OBS),
            rows(OBS, elements=st.one_of(st.just(0.0), reals(0.0009765625, 50))),
            rows(OBS, elements=reals(0.0625, 500)),
            rows(4, OBS),
        ),
        options={"epsilon": 1e-3},
        oracle=standardised_by_hand,
        laws=[one_std_is_at_most_one, the_unit_does_not_matter],
        refuses=[
            Refusal(match, (jnp.ones(2), *rest, jnp.ones(2)), {"epsilon": epsilon})
            for match, rest, epsilon in (
                ("mean and std must have one shape", (jnp.ones(3), jnp.ones(2)), 1e-3),
                ("mean and span must have one shape", (jnp.ones(2), jnp.ones(3)), 1e-3),
                ("std must be finite and not negative", (-jnp.ones(2), jnp.ones(2)), 1e-3),
                ("span must be finite and positive", (jnp.ones(2), jnp.zeros(2)), 1e-3),
                ("span must be finite and positive", (jnp.ones(2), jnp.full(2, jnp.inf)), 1e-3),
                ("epsilon must be finite and positive", (jnp.ones(2), jnp.ones(2)), 0.0),
            )
        ],
        edges=[Edge((np.zeros(3), np.zeros(3), np.ones(3), np.ones((4, 3))), {"epsilon": 1e-3})],
        rtol=1e-4,
    ),
]
