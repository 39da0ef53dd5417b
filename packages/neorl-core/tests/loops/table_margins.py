import numpy as np
from hypothesis import strategies as st

from neorl_core.loops import LoopMargins, PIDGains, SampledModel, TransferFunction, loop_margins
from neorl_core.testing import Edge, Refusal, Row, assert_close, mapped, reals, rows

# First order with dead time under a PI with some derivative, from sluggish to tight.
LOOPS = st.tuples(
    st.tuples(
        rows(1, elements=reals(0.5, 2.0)),
        rows(elements=reals(2.0, 20.0)),
        rows(elements=reals(0.6, 6.0)),
    ),
    st.tuples(
        rows(elements=reals(0.2, 1.0)),
        rows(elements=reals(0.01, 0.06)),
        rows(elements=reals(0.1, 0.3)),
        rows(elements=reals(0.1, 0.5)),
    ),
).map(
    lambda drawn: (
        TransferFunction(
            drawn[0][0], np.stack([drawn[0][1], np.ones_like(drawn[0][1])], axis=1), drawn[0][2]
        ),
        PIDGains(*drawn[1]),
    )
)
DT = 0.5


def response(process, gains, w, dt):
    """The open loop on the axis, term by term."""
    (gain,), (lag, _) = process.numerator, process.denominator
    if dt is None:
        s = 1j * w
        controller = gains.kp + gains.ki / s + gains.kd * s / (gains.tau * s + 1)
        return controller * gain / (lag * s + 1) * np.exp(-process.dead_time * s)
    z = np.exp(1j * w * dt)
    whole = np.floor(process.dead_time / dt)
    left = dt - (process.dead_time - whole * dt)
    now = gain * (1 - np.exp(-left / lag))
    before = gain * (np.exp(-left / lag) - np.exp(-dt / lag))
    plant = (now + before / z) / (z - np.exp(-dt / lag)) * z**-whole
    change = 1 - 1 / z
    weight = dt / (gains.tau + dt)
    derivative = weight * change / dt / (1 - (1 - weight) / z)
    return plant * (gains.kp + gains.ki * dt / change + gains.kd * derivative)


def at_zero(values, places):
    """Interpolated places where the values change their sign."""
    at = np.flatnonzero(np.diff(np.sign(values)))
    share = -values[at] / (values[at + 1] - values[at])
    return places[at] + share * (places[at + 1] - places[at])


def margins_by_a_fine_grid(process, gains, *, points, dt=None):
    """From 200 000 frequencies, and stability by counting turns around -1 (Nyquist)."""
    top = 1e3 if dt is None else np.pi / dt
    w = np.geomspace(1e-5, top, 200_001)
    loop = response(process, gains, w, dt)
    steps = np.angle((1 + loop[1:]) / (1 + loop[:-1]))
    # From -90 degrees, because of the integral, to none, when -1 is not encircled.
    if abs(np.sum(steps) - np.pi / 2) > 0.3:
        return LoopMargins(np.asarray(False), *[np.asarray(np.nan)] * 8)
    phase = at_zero(loop.imag, w)
    factors = -1 / response(process, gains, phase, dt).real
    if dt is not None and loop[-1].real < 0:
        phase, factors = np.append(phase, w[-1]), np.append(factors, -1 / loop[-1].real)
    phase, factors = phase[factors > 1], factors[factors > 1]
    unity = at_zero(np.log(np.abs(loop)), w)
    missing = np.angle(-response(process, gains, unity, dt))
    least = np.argmin(np.abs(missing)) if len(unity) else None
    sensitivity = 1 / np.abs(1 + loop)
    best = np.argmax(sensitivity)
    nothing = [] if len(unity) else [np.inf]
    numbers = (
        np.min(factors),
        0.0,
        np.degrees(missing[least]) if len(unity) else np.inf,
        np.min([*(missing % (2 * np.pi) / unity), *nothing]),
        sensitivity[best],
        phase[np.argmin(factors)],
        unity[least] if len(unity) else np.nan,
        w[best],
    )
    return LoopMargins(np.asarray(True), *(np.asarray(number) for number in numbers))


def gains_multiply(process, gains, **options):
    """A gain moves between process and controller without changing the loop."""
    moved = process._replace(numerator=4 * process.numerator)
    quarter = PIDGains(gains.kp / 4, gains.ki / 4, gains.kd / 4, gains.tau)
    plain = mapped(loop_margins, process, gains, **options)
    assert_close(mapped(loop_margins, moved, quarter, **options), plain, rtol=1e-3)


def time_has_no_unit(process, gains, **options):
    """In minutes the same loop has the same margins, later by 60."""
    minutes = TransferFunction(
        process.numerator, process.denominator / [60, 1], process.dead_time / 60
    )
    per = PIDGains(gains.kp, 60 * gains.ki, gains.kd / 60, gains.tau / 60)
    plain = mapped(loop_margins, process, gains, **options)
    options = options | {"dt": options["dt"] / 60}
    other = mapped(
        loop_margins,
        TransferFunction(*(np.asarray(leaf, np.float32) for leaf in minutes)),
        PIDGains(*(np.asarray(leaf, np.float32) for leaf in per)),
        **options,
    )
    # The edge of stability itself is no place to compare.
    assert_close(other.peak_sensitivity, plain.peak_sensitivity, rtol=2e-3)
    assert_close(other.delay_margin * 60, plain.delay_margin, rtol=2e-3)


LAG = TransferFunction(np.ones(1), np.asarray([5.0, 1.0]), 1.0)
GAINS = PIDGains(0.5, 0.1, 0.0, 0.0)
PID = PIDGains(0.8, 0.2, 0.3, 0.1)

ROWS = [
    Row(
        loop_margins,
        LOOPS,
        margins_by_a_fine_grid,
        options={"points": 512, "dt": DT},
        laws=[gains_multiply, time_has_no_unit],
        # A continuous controller is another program.
        edges=[Edge((LAG, GAINS), {"points": 512}), Edge((LAG, PID), {"points": 512})],
        refuses=[
            Refusal("points must be 16 or more", (LAG, GAINS), {"points": 4}),
            Refusal("dt must be finite and positive", (LAG, GAINS), {"dt": 0.0}),
            Refusal("tau must be finite and not negative", (LAG, GAINS._replace(tau=-1.0))),
            Refusal("dead_time must be finite", (LAG._replace(dead_time=-1.0), GAINS)),
            Refusal(
                "denominator must begin with",
                (LAG._replace(denominator=np.asarray([0.0, 1.0])), GAINS),
            ),
            Refusal("numerator must be no longer", (LAG._replace(numerator=np.ones(3)), GAINS)),
            Refusal(
                "numerator must be shorter",
                (LAG._replace(numerator=np.ones(2)), GAINS),
                {"dt": 1.0},
            ),
            Refusal("dt must be the period", (SampledModel(np.ones(1), np.ones(1), 0), GAINS)),
            Refusal(
                "delay must not be negative",
                (SampledModel(np.ones(1), np.ones(1), -1), GAINS),
                {"dt": 1.0},
                traced="a count that is traced is not judged",
            ),
            Refusal("must be a TransferFunction", (3.0, GAINS), error=TypeError),
        ],
        differentiable=False,
        exempt={"finite": "an unstable loop has no margins"},
        rtol=5e-3,  # the frequency of a flat maximum; test_known_loops.py is stricter
    ),
]
