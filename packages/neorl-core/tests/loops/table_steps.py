import itertools

import numpy as np
from hypothesis import strategies as st
from scipy import linalg, signal

from neorl_core.loops import (
    PIDGains,
    StepFigures,
    StepResponse,
    TransferFunction,
    step_figures,
    step_response,
)
from neorl_core.testing import Refusal, Row, assert_close, mapped, reals, rows

STEPS = 14
LOOPS = st.tuples(
    rows(2, elements=reals(0.2, 2.0)),
    rows(3, elements=reals(1.0, 3.0)),
    rows(elements=reals(0.0, 3.0)),
    *[rows(elements=reals(0.05, 0.5)) for _ in range(4)],
).map(lambda drawn: (TransferFunction(*drawn[:3]), PIDGains(*drawn[3:])))


def moved(a, b, x, seconds, u):
    """The state after some seconds of a constant input."""
    block = np.zeros((len(a) + 1, len(a) + 1))
    block[:-1, :-1], block[:-1, -1] = a, b[:, 0] * u
    return (linalg.expm(block * seconds) @ np.append(x, 1.0))[:-1]


def response_by_pieces(process, gains, *, dt, steps, setpoint, load):
    """The plant between the instants at which its delayed input changes."""
    a, b, c, _ = signal.tf2ss(process.numerator, process.denominator)
    whole = int(np.floor(process.dead_time / dt))
    late = process.dead_time - whole * dt
    x, integral, slope, last, y, u = np.zeros(len(a)), 0.0, 0.0, 0.0, [], []

    def sent(k):
        return u[k] + load if k >= 0 else 0.0

    for k in range(steps):
        y.append((c @ x).item())
        slope += dt / (gains.tau + dt) * ((y[-1] - last) / dt - slope)
        last = y[-1]
        integral += gains.ki * (setpoint - last) * dt
        u.append(gains.kp * (setpoint - last) + integral - gains.kd * slope)
        x = moved(a, b, x, late, sent(k - whole - 1))
        x = moved(a, b, x, dt - late, sent(k - whole))
    return StepResponse(np.asarray(y), np.asarray(u))


def responses_add_up(process, gains, *, dt, steps, setpoint, load):
    only = {"dt": dt, "steps": steps}
    both = mapped(step_response, process, gains, setpoint=setpoint, load=load, **only)
    first = mapped(step_response, process, gains, setpoint=setpoint, load=0.0, **only)
    second = mapped(step_response, process, gains, setpoint=0.0, load=load, **only)
    assert_close(both.measurement, first.measurement + second.measurement, atol=1e-5)
    assert_close(both.output, first.output + second.output, atol=1e-5)


def figures_by_loops(measurement, output, *, setpoint, dt, band):
    error = np.abs(measurement - setpoint)
    beyond = max(0.0, max((measurement - setpoint) * np.sign(setpoint)))
    inside = error <= band * error.max()
    settled = np.inf
    for k in reversed(range(len(error))):
        if not inside[k]:
            break
        settled = k * dt
    travel = abs(output[0]) + sum(abs(b - a) for a, b in itertools.pairwise(output))
    numbers = (beyond / abs(setpoint), error.max(), settled, error.sum() * dt, travel)
    return StepFigures(*(np.asarray(number) for number in numbers))


def figures_follow_the_units(measurement, output, *, setpoint, dt, band):
    plain = mapped(step_figures, measurement, output, setpoint=setpoint, dt=dt, band=band)
    units = {"setpoint": -2 * setpoint, "dt": 4 * dt, "band": band}
    other = mapped(step_figures, -2 * measurement, 3 * output, **units)
    expected = StepFigures(
        plain.overshoot,
        2 * plain.peak,
        4 * plain.settling_time,
        8 * plain.absolute_error,
        3 * plain.travel,
    )
    assert_close(other, expected, rtol=1e-5)


LAG = TransferFunction(np.ones(1), np.asarray([5.0, 1.0]), 1.0)
GAINS = PIDGains(0.5, 0.1, 0.0, 0.0)
FIGURES = {"setpoint": 1.0, "dt": 0.5, "band": 0.05}

ROWS = [
    Row(
        step_response,
        LOOPS,
        response_by_pieces,
        options={"dt": 0.5, "steps": STEPS, "setpoint": 1.0, "load": 0.5},
        laws=[responses_add_up],
        refuses=[
            Refusal("dt must be finite", (LAG, GAINS), {"dt": -1.0, "steps": 3}),
            Refusal("steps must be 1 or more", (LAG, GAINS), {"dt": 1.0, "steps": 0}),
            Refusal(
                "kp must be one number",
                (LAG, GAINS._replace(kp=np.ones(2))),
                {"dt": 1.0, "steps": 3},
            ),
        ],
        differentiable=False,
        rtol=1e-4,  # fourteen periods of a loop that may be unstable
        atol=1e-5,
    ),
    Row(
        step_figures,
        st.tuples(*[rows(9, elements=reals(-1.0, 2.0)) for _ in range(2)]),
        figures_by_loops,
        options=FIGURES,
        laws=[figures_follow_the_units],
        refuses=[
            Refusal("one shape", (np.ones(3), np.ones(2)), FIGURES),
            Refusal("band must be in (0, 1)", (np.ones(3), np.ones(3)), FIGURES | {"band": 2.0}),
        ],
        differentiable=False,
        exempt={"finite": "a loop that does not settle needs infinite time"},
    ),
]
