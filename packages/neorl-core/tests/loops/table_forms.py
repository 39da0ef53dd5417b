import dataclasses

import numpy as np
from hypothesis import strategies as st

from neorl_core.loops import Faceplate, PIDForm, PIDGains, faceplate, pid_gains
from neorl_core.testing import Edge, Refusal, Row, assert_close, mapped, reals, rows

FORMS = [
    PIDForm("standard", "band", "minutes", "minutes", "divisor", "percent", 30.0, 60.0),
    PIDForm(
        "parallel", "gain", "per_minute", "seconds", "seconds", "percent", 30.0, 60.0, "direct"
    ),
    PIDForm("series", "gain", "seconds", "seconds", "ratio", "engineering"),
]
OPTIONS = st.sampled_from(FORMS).map(lambda form: {"form": form})
SECONDS = {"seconds": 1.0, "minutes": 60.0, "per_second": 1.0, "per_minute": 60.0}
# A derivative below a quarter of the integral's time, so that every loop has a series form.
SHOWN = st.tuples(
    rows(elements=reals(0.5, 5.0)),
    rows(elements=reals(8.0, 40.0)),
    rows(elements=reals(0.5, 4.0)),
    rows(elements=reals(0.1, 0.9)),
).map(lambda numbers: (Faceplate(*numbers),))
LOOPS = st.tuples(
    rows(elements=reals(1.0, 5.0)),
    rows(elements=reals(0.01, 0.05)),
    rows(elements=reals(0.1, 2.0)),
    rows(elements=reals(0.01, 0.1)),
)


def gain_of(form):
    spans = form.output_span / form.measurement_span if form.units == "percent" else 1.0
    return spans * (1 if form.direction == "reverse" else -1)


def gains_by_polynomials(shown, *, form):
    """From the numerator over ``s (F s + 1)``, whose three coefficients have one parallel form."""
    gain = 100 / shown.proportional if form.proportional == "band" else shown.proportional
    per = form.integral.startswith("per_")
    rate = (shown.integral if per else 1 / shown.integral) / SECONDS[form.integral]
    time = shown.derivative * SECONDS[form.derivative]
    lead = abs(time / gain) if form.structure == "parallel" and time else time
    filters = {"divisor": lead / shown.derivative_filter, "ratio": lead * shown.derivative_filter}
    filters |= {"seconds": shown.derivative_filter, "minutes": 60 * shown.derivative_filter}
    tau = filters[form.derivative_filter] if time else np.zeros(())
    lag = [tau, 1.0]
    if form.structure == "series":
        above = gain * np.polymul([1.0, rate], [time, 1.0])
    else:
        parts = (
            [gain, rate, time] if form.structure == "parallel" else [gain, gain * rate, gain * time]
        )
        above = np.polyadd(parts[0] * np.asarray([*lag, 0.0]), parts[1] * np.asarray(lag))
        above = np.polyadd(above, [parts[2], 0.0, 0.0])
    above = above * gain_of(form)
    ki = above[2]
    kp = above[1] - ki * tau
    return PIDGains(kp, ki, above[0] - kp * tau, tau)


def shown_by_roots(gains, *, form):
    kp, ki, kd = (number / gain_of(form) for number in gains[:3])
    if form.structure == "series":
        zeros = np.roots([kp * gains.tau + kd, kp + ki * gains.tau, ki])
        gain = ki / np.min(np.abs(zeros))
        rate, time = np.min(np.abs(zeros)), 1 / np.max(np.abs(zeros))
    elif form.structure == "standard":
        gain, rate, time = kp, ki / kp, kd / kp
    else:
        gain, rate, time = kp, ki, kd
    lead = abs(time / gain) if form.structure == "parallel" else time
    filters = {"divisor": lead / gains.tau, "ratio": gains.tau / lead, "seconds": gains.tau}
    per = form.integral.startswith("per_")
    unit = SECONDS[form.integral]
    return Faceplate(
        100 / gain if form.proportional == "band" else gain,
        rate * unit if per else 1 / (rate * unit),
        time / SECONDS[form.derivative],
        filters[form.derivative_filter],
    )


def comes_back_from_gains(shown, *, form):
    back = mapped(faceplate, mapped(pid_gains, shown, form=form), form=form)
    assert_close(back, shown, rtol=2e-5)


def faceplate_of_a_loop(gains, *, form):
    """As :func:`faceplate`, of gains whose sign is made that of the form."""
    sign = 1.0 if form.direction == "reverse" else -1.0
    return faceplate(PIDGains(*(sign * number for number in gains[:3]), gains.tau), form=form)


def shown_of_a_loop(gains, *, form):
    sign = 1.0 if form.direction == "reverse" else -1.0
    return shown_by_roots(PIDGains(*(sign * number for number in gains[:3]), gains.tau), form=form)


def comes_back_signed(gains, *, form):
    shown = mapped(faceplate_of_a_loop, gains, form=form)
    back = mapped(pid_gains, shown, form=form)
    assert_close([np.abs(one) for one in back], list(gains), rtol=2e-5)


STANDARD, SERIES = FORMS[0], FORMS[2]
PARALLEL = dataclasses.replace(FORMS[1], direction="reverse")

ROWS = [
    Row(
        pid_gains,
        SHOWN,
        gains_by_polynomials,
        options=OPTIONS,
        laws=[comes_back_from_gains],
        edges=[
            Edge((Faceplate(40.0, 2.0, 0.0, 10.0),), {"form": STANDARD}),
            Edge((Faceplate(0.0, 0.0, 0.0, 0.5),), {"form": PARALLEL}),
        ],
        refuses=[
            Refusal(
                "proportional must be positive",
                (Faceplate(0.0, 1.0, 0.0, 1.0),),
                {"form": STANDARD},
            ),
            Refusal(
                "integral must be positive", (Faceplate(1.0, 0.0, 0.0, 1.0),), {"form": SERIES}
            ),
            Refusal(
                "derivative must be not negative",
                (Faceplate(1.0, 1.0, -1.0, 1.0),),
                {"form": SERIES},
            ),
        ],
    ),
    Row(
        faceplate_of_a_loop,
        LOOPS.map(lambda numbers: (PIDGains(*numbers),)),
        shown_of_a_loop,
        options=OPTIONS,
        laws=[comes_back_signed],
        refuses=[
            Refusal("four derivative times", (PIDGains(1.0, 1.0, 1.0, 0.0),), {"form": SERIES}),
            Refusal(
                "not negative; check direction",
                (PIDGains(-1.0, -1.0, 0.0, 0.0),),
                {"form": STANDARD},
            ),
            Refusal("a proportional gain", (PIDGains(0.0, 1.0, 0.0, 0.0),), {"form": STANDARD}),
        ],
        # The square root of the series form has no slope at equal times.
        differentiable=False,
        name="faceplate",
    ),
]
