"""Proposed gains: judged beside slow code in double precision, searched beside a fine grid."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neorl_agents.loops import (
    FaceplateRow,
    Interval,
    LoopJudgement,
    LoopModel,
    LoopRecord,
    MarginTable,
    StepGrid,
    TuningSettings,
    faceplate_change,
    faceplate_rows,
    faceplate_sentence,
    halfway,
    judged_loops,
    loops_on_members,
    margin_table,
    propose,
    replay,
    replayed_loops,
    step_grid,
)
from neorl_core import InputError
from neorl_core.loops import Faceplate, PIDForm, PIDGains, SampledModel, TransferFunction, pid_gains
from neorl_core.testing import ROWS, assert_close, oracle, reals, rows

PERIOD = 10.0


def interval(value: float) -> Interval:
    return Interval(value, 0.9 * value, 1.1 * value)


def model(gain=2.0, lag=300.0, dead_time=40.0, spread=0.12, members=5, why_not="") -> LoopModel:
    """First order with dead time, sampled; members spread as much as the log leaves open."""
    rng = np.random.default_rng(3)
    found = []
    for number in range(members):
        k, t = (gain, lag) * np.exp(spread * rng.normal(size=2) * (number > 0))
        a = np.exp(-PERIOD / t)
        late = round(dead_time / PERIOD) + number % 2
        found.append(SampledModel(jnp.asarray([a]), jnp.asarray([k * (1 - a)]), jnp.int32(late)))
    numbers = interval(gain), interval(dead_time), (interval(lag),)
    return LoopModel(tuple(found), *numbers, False, 0.9, 100.0, (), not why_not, why_not)


def slow_margins(
    member: SampledModel, gains: PIDGains, points: int = 60_000
) -> tuple[float, float]:
    """Peak sensitivity and gain margin on the unit circle, by a fine grid."""
    a, b, delay = float(member.a[0]), float(member.b[0]), int(member.delay)
    w = np.geomspace(1e-5, np.pi, points)
    z = np.exp(1j * w)
    weight = PERIOD / (gains.tau + PERIOD)
    rise = 1 - 1 / z
    controller = gains.kp + gains.ki * PERIOD / rise
    controller = controller + gains.kd * weight * rise / PERIOD / (1 - (1 - weight) / z)
    loop = b * z ** -float(delay) / (z - a) * controller
    crossed = np.flatnonzero((loop.imag[1:] >= 0) & (loop.imag[:-1] < 0) & (loop.real[1:] < 0))
    factors = -1 / loop.real[crossed]
    return float(np.max(1 / np.abs(1 + loop))), float(np.min(factors[factors > 1], initial=np.inf))


def slow_steps(member: SampledModel, gains: PIDGains, n: int, setpoint: float, load: float):
    """Measurement and output after a step, row by row."""
    a, b, late = float(member.a[0]), float(member.b[0]), int(member.delay)
    y, u = np.zeros(n), np.zeros(n)
    integral = derivative = 0.0
    for t in range(n):
        if t:
            sent = u[t - 1 - late] + load if t - 1 - late >= 0 else 0.0
            y[t] = a * y[t - 1] + b * sent
        weight = PERIOD / (gains.tau + PERIOD)
        derivative += weight * ((y[t] - y[t - 1] if t else 0.0) / PERIOD - derivative)
        integral += gains.ki * PERIOD * (setpoint - y[t])
        u[t] = gains.kp * (setpoint - y[t]) + integral - gains.kd * derivative
    return y, u


def one_loop(members, gains, dt, *, steps):
    """What :func:`loops_on_members` says of one loop: margins, errors, ways and both steps."""
    judged = loops_on_members(members, PIDGains(*(g[None] for g in gains)), dt, dt, steps=steps)
    return (
        judged.margins.peak_sensitivity[0],
        judged.margins.gain_margin[0],
        judged.load_figures.absolute_error[0],
        judged.setpoint.measurement[0],
        judged.load.output[0],
    )


def one_loop_slowly(members, gains, dt, *, steps):
    assert dt == PERIOD
    parts = []
    for number in range(2):
        member = SampledModel(*(leaf[number] for leaf in members))
        y, u = slow_steps(member, gains, steps, 0.0, 1.0)
        moved, _ = slow_steps(member, gains, steps, 1.0, 0.0)
        parts.append((*slow_margins(member, gains), np.sum(np.abs(y)) * dt, moved, u))
    return tuple(np.stack([part[i] for part in parts]) for i in range(5))


LOOPS = st.tuples(
    st.tuples(
        rows(2, 1, elements=reals(0.9, 0.97)),
        rows(2, 1, elements=reals(0.05, 0.15)),
        st.just(np.tile(np.asarray([[2, 5]], np.int32), (ROWS, 1))),
    ).map(lambda drawn: SampledModel(*drawn)),
    st.tuples(
        rows(elements=reals(0.2, 0.8)),
        rows(elements=reals(0.001, 0.004)),
        rows(elements=reals(0.5, 4.0)),
        rows(elements=reals(1.0, 5.0)),
    ).map(lambda drawn: PIDGains(*drawn)),
    rows(elements=st.just(np.float32(PERIOD))),
)


@given(LOOPS)
def test_a_loop_is_judged_as_slow_code_judges_it(sample):
    oracle(one_loop, one_loop_slowly, *sample, rtol=1e-3, steps=60)


def test_the_margins_of_a_table_are_those_of_the_worst_member():
    gains = PIDGains(0.9, 0.9 / 250, 0.0, 0.0)
    around = model()
    grid = step_grid(around, PERIOD, [gains])
    judged = judged_loops(around, [gains, gains._replace(kp=9.0)], period=PERIOD, grid=grid)
    assert isinstance(judged, LoopJudgement)
    slow = [slow_margins(member, gains) for member in around.members]
    table = margin_table(judged.of(0))
    assert_close(table.peak_sensitivity.high, max(ms for ms, _ in slow), rtol=1e-3)
    assert_close(table.peak_sensitivity.value, slow[0][0], rtol=1e-3)
    assert_close(table.gain_margin.low, min(gm for _, gm in slow), rtol=1e-3)
    assert table.worst == 1 + int(np.argmax([ms for ms, _ in slow]))
    unstable = margin_table(judged.of(1))
    assert isinstance(unstable, MarginTable)
    assert not unstable.stable
    assert not unstable.accepted
    assert unstable.peak_sensitivity.high == np.inf
    assert unstable.gain_margin.low == 1.0


def test_more_loops_than_fit_together_are_judged_alike():
    around, grid = model(members=2), StepGrid(PERIOD, 40)
    loops = [PIDGains(0.2 + 0.01 * i, 0.001, 0.0, 0.0) for i in range(100)]
    many = judged_loops(around, loops, period=PERIOD, grid=grid)
    last = judged_loops(around, loops[-1:], period=PERIOD, grid=grid)
    assert_close(many.of(99), last.of(0))
    with pytest.raises(InputError, match="at least one loop"):
        judged_loops(around, [], period=PERIOD, grid=grid)


def test_members_of_different_order_are_judged_together():
    first = TransferFunction(np.asarray([2.0]), np.asarray([300.0, 1.0]), np.asarray(40.0))
    second = first._replace(denominator=np.asarray([300.0 * 60.0, 360.0, 1.0]))
    gains, grid = [PIDGains(0.5, 0.002, 0.0, 0.0)], StepGrid(PERIOD, 60)
    around = model()._replace(members=(first, second))
    both = judged_loops(around, gains, period=PERIOD, grid=grid).of(0)
    for number, member in enumerate((first, second)):
        alone = judged_loops(model()._replace(members=(member,)), gains, period=PERIOD, grid=grid)
        sensitivity = alone.margins.peak_sensitivity[0, 0]
        assert_close(both.margins.peak_sensitivity[number], sensitivity, rtol=2e-3)
        error = alone.load_figures.absolute_error[0, 0]
        assert_close(both.load_figures.absolute_error[number], error, rtol=2e-3)


TODAY = PIDGains(0.2, 0.2 / 900, 0.0, 0.0)


def test_the_search_finds_what_a_fine_grid_finds():
    around = model()
    found = propose(around, TODAY, period=PERIOD, output_span=100.0)
    grid = step_grid(around, PERIOD, [TODAY])
    loops = [
        PIDGains(kp, kp / ti, 0.0, 0.0)
        for kp in np.geomspace(0.3, 4, 24)
        for ti in np.geomspace(60, 600, 24)
    ]
    judged = judged_loops(around, loops, period=PERIOD, grid=grid)
    errors = np.mean(judged.load_figures.absolute_error, axis=1)
    tables = [margin_table(judged.of(i)) for i in range(len(loops))]
    robust = [t.stable and t.peak_sensitivity.high <= 1.8 for t in tables]
    assert not found.kept
    assert found.chosen.load_error <= 1.02 * errors[robust].min()
    for member in around.members:
        ms, gm = slow_margins(member, found.chosen.gains)
        assert ms <= 1.8 * 1.001
        assert gm >= 1.7
    assert "peak sensitivity" in found.stopped
    assert found.profile[0].load_error > found.chosen.load_error


def test_the_mean_member_does_not_decide():
    sure = propose(model(spread=0.0), TODAY, period=PERIOD, output_span=100.0).chosen
    unsure = propose(model(spread=0.4), TODAY, period=PERIOD, output_span=100.0).chosen
    assert unsure.gains.kp < 0.9 * sure.gains.kp
    assert unsure.margins.peak_sensitivity.high <= 1.8
    assert unsure.margins.peak_sensitivity.low < unsure.margins.peak_sensitivity.high


def test_the_unit_of_the_measurement_does_not_matter():
    plain = propose(model(), TODAY, period=PERIOD, output_span=100.0).chosen.gains
    scaled = propose(
        model(gain=2000.0), PIDGains(*(g / 1000 for g in TODAY)), period=PERIOD, output_span=100.0
    ).chosen.gains
    assert_close(scaled.kp * 1000, plain.kp, rtol=1e-3)
    assert_close(scaled.ki * 1000, plain.ki, rtol=1e-3)


def test_a_process_with_a_negative_gain_gets_negative_gains():
    today = PIDGains(-0.2, -0.2 / 900, 0.0, 0.0)
    found = propose(model(gain=-2.0), today, period=PERIOD, output_span=100.0)
    same = propose(model(), TODAY, period=PERIOD, output_span=100.0)
    assert_close(found.chosen.gains.kp, -same.chosen.gains.kp)
    with pytest.raises(InputError, match="must be direct acting"):
        propose(model(gain=-2.0), TODAY, period=PERIOD, output_span=100.0)


def test_a_loop_without_a_usable_model_gets_no_gains():
    with pytest.raises(InputError, match="the valve sticks"):
        propose(model(why_not="the valve sticks"), TODAY, period=PERIOD, output_span=100.0)


def test_noise_stops_the_search_before_the_margins_do():
    free = propose(model(), TODAY, period=PERIOD, output_span=100.0)
    noisy = propose(model(), TODAY, period=PERIOD, output_span=100.0, noise=1.0)
    assert noisy.chosen.gains.kp < free.chosen.gains.kp
    assert "noise" in noisy.stopped
    assert noisy.chosen.noise <= 1.0


def test_a_good_loop_is_kept_and_one_that_is_too_tight_is_calmed():
    good = propose(model(), TODAY, period=PERIOD, output_span=100.0).chosen
    again = propose(model(), good.gains, period=PERIOD, output_span=100.0)
    assert again.kept
    assert again.chosen.gains == good.gains
    assert "not worth a change" in again.reason
    tight = PIDGains(2.4 * good.gains.kp, 2.4 * good.gains.ki, 0.0, 0.0)
    calmed = propose(model(), tight, period=PERIOD, output_span=100.0)
    assert not calmed.kept
    assert calmed.chosen.margins.accepted
    assert "not robust" in calmed.reason
    strict = TuningSettings(sensitivity=1.01)
    assert propose(model(), TODAY, period=PERIOD, output_span=100.0, settings=strict).kept


def test_a_derivative_is_used_where_today_has_one():
    today = TODAY._replace(kd=TODAY.kp * 20, tau=2.0)
    found = propose(model(), today, period=PERIOD, output_span=100.0).chosen
    assert found.gains.kd >= 0
    assert found.margins.accepted
    grid = step_grid(model(), PERIOD, [today])
    judged = judged_loops(model(), [found.gains], period=PERIOD, grid=grid).of(0)
    error = np.mean(judged.load_figures.absolute_error)
    assert_close(error, found.load_error, rtol=1e-5)


def test_the_loop_on_the_way_has_the_geometric_means():
    between = halfway(PIDGains(-1.0, -0.01, 0.0, 0.0), PIDGains(-4.0, -0.09, -2.0, 1.0))
    assert_close(between, PIDGains(-2.0, -0.03, -1.0, 0.5))


PERCENT = PIDForm(integral="minutes", measurement_span=30.0, output_span=100.0)


@pytest.mark.parametrize(
    ("form", "before"),
    [
        (PERCENT, Faceplate(0.1, 20.0, 0.0, 10.0)),
        (PIDForm("parallel", "gain", "per_minute", "minutes"), Faceplate(2.0, 0.5, 1.0, 10.0)),
        (PIDForm("series", "band", "per_minute", "minutes"), Faceplate(80.0, 0.5, 0.25, 8.0)),
        (PIDForm(units="engineering", direction="direct"), Faceplate(3.0, 90.0, 0.0, 10.0)),
        (PIDForm(derivative_filter="ratio"), Faceplate(3.0, 90.0, 5.0, 0.1)),
    ],
)
def test_numbers_go_to_the_faceplate_and_back(form, before):
    today = faceplate_change(before, _gains(before, form), form)
    factors = (1.7, 2.3, 1.4, 0.9)
    proposed = PIDGains(*map(float, np.multiply(today.gains_before, factors)))
    change = faceplate_change(before, proposed, form)
    assert change.before == before
    assert_close(change.gains_after, proposed, rtol=2e-3)
    # Typed, read back and shown again, the numbers are the same to the last digit.
    again = faceplate_change(before, change.gains_after, form)
    assert again.after == change.after
    for row in faceplate_rows(change):
        assert [float(text) for text in row.text] == [row.before, row.after]


def _gains(shown, form: PIDForm) -> PIDGains:
    return PIDGains(*map(float, pid_gains(Faceplate(*shown), form=form)))


def test_a_change_is_named_by_its_tag_and_in_the_words_of_the_faceplate():
    before = Faceplate(0.1, 20.0, 0.0, 10.0)
    change = faceplate_change(before, PIDGains(0.464234, 0.464234 / 1103.04, 0.0, 0.0), PERCENT)
    shown = faceplate_rows(change, measurement_unit="°Bx", output_unit="%")
    assert shown[0] == FaceplateRow("gain", "%/%", 0.1, 0.1393)
    assert faceplate_sentence("AIC-401", shown, "reverse") == (
        "AIC-401: gain 0.1 to 0.1393 %/%, reset 20 to 18.38 min, reverse (unchanged)"
    )
    with pytest.raises(InputError, match="another sign than a reverse-acting"):
        faceplate_change(before, PIDGains(-0.4, -0.001, 0.0, 0.0), PERCENT)
    same = faceplate_change(
        Faceplate(0.123456, 20.0, 0.0, 10.0), _gains((0.123456, 18.0, 0, 10), PERCENT), PERCENT
    )
    assert same.after == (0.123456, 18.0, 0.0, 10.0)
    off = faceplate_change(Faceplate(0.1, np.inf, 0.0, 10.0), PIDGains(0.4, 0.0, 0.0, 0.0), PERCENT)
    assert faceplate_rows(off)[1].text == ("off", "off")


def slow_replay(member: SampledModel, gains: PIDGains, sp, y, u, low, high):
    """The logged rows under other gains, row by row in double precision."""
    n, a, b, late = len(y), float(member.a[0]), float(member.b[0]), int(member.delay)

    def effect(outputs):
        x = np.zeros(n)
        for t in range(1, n):
            x[t] = a * x[t - 1] + b * (outputs[t - 1 - late] - u[0] if t - 1 - late >= 0 else 0.0)
        return x

    rest = y - effect(u)
    x, sent, measured = np.zeros(n), np.zeros(n), np.zeros(n)
    integral, derivative = u[0] - gains.kp * (sp[0] - y[0]), 0.0
    for t in range(n):
        if t:
            past = sent[t - 1 - late] - u[0] if t - 1 - late >= 0 else 0.0
            x[t] = a * x[t - 1] + b * past
        measured[t] = rest[t] + x[t]
        weight = PERIOD / (gains.tau + PERIOD)
        slope = (measured[t] - measured[t - 1]) / PERIOD if t else 0.0
        derivative += weight * (slope - derivative)
        error = sp[t] - measured[t]
        integral += gains.ki * error * PERIOD if t else 0.0
        wanted = gains.kp * error + integral - gains.kd * derivative
        sent[t] = np.clip(wanted, low, high)
        integral += sent[t] - wanted if gains.ki else 0.0
    return measured, sent


def one_replay(member, gains, noise, dt):
    setpoint, y, u, limits = _rows(noise, jnp)
    one = [jnp.expand_dims(leaf, 0) for leaf in member]
    loop = PIDGains(*(g[None] for g in gains))
    found = replayed_loops(SampledModel(*one), loop, setpoint, y, u, dt, limits, length=150)
    return tuple(part[0, 0] for part in found)


def one_replay_slowly(member, gains, noise, dt):
    assert dt == PERIOD
    setpoint, y, u, (low, high) = _rows(noise, np)
    return slow_replay(member, gains, setpoint, y, u, low, high)


def _rows(noise, np_):
    drift = np_.cumsum(noise)
    steps = np_.arange(noise.shape[0]) > 40
    return 50.0 + 2.0 * steps, 50.0 + drift, 40.0 - 0.5 * drift, np_.asarray([20.0, 60.0])


@given(
    st.tuples(
        st.tuples(
            rows(1, elements=reals(0.8, 0.9)),
            rows(1, elements=reals(0.05, 0.2)),
            st.just(np.full(ROWS, 3, np.int32)),
        ).map(lambda drawn: SampledModel(*drawn)),
        st.tuples(
            rows(elements=reals(0.2, 1.0)),
            rows(elements=reals(0.001, 0.01)),
            rows(elements=reals(0.5, 4.0)),
            rows(elements=reals(1.0, 5.0)),
        ).map(lambda drawn: PIDGains(*drawn)),
        rows(150, elements=reals(-0.3, 0.3)),
        rows(elements=st.just(np.float32(PERIOD))),
    )
)
def test_rows_are_replayed_as_slow_code_replays_them(sample):
    oracle(one_replay, one_replay_slowly, *sample, rtol=1e-3)


def logged(gains: PIDGains, n: int = 600, seed: int = 0) -> LoopRecord:
    """Rows of a loop around the first member, with a wandering load."""
    rng = np.random.default_rng(seed)
    load = np.cumsum(rng.normal(size=n)) * 0.05
    member = model().members[0]
    a, b, late = float(member.a[0]), float(member.b[0]), int(member.delay)
    y, u, integral = np.full(n, 45.0), np.full(n, 40.0), 40.0
    for t in range(n):
        if t:
            past = t - 1 - late
            sent = u[past] - 40.0 + load[past] if past >= 0 else 0.0
            y[t] = 45.0 + a * (y[t - 1] - 45.0) + b * sent
        integral += gains.ki * PERIOD * (45.0 - y[t]) if t else 0.0
        u[t] = gains.kp * (45.0 - y[t]) + integral
    names = ("°Bx", "%", (30.0, 60.0), (0.0, 100.0))
    on, piece = np.ones(n, bool), np.zeros(n, int)
    return LoopRecord("AIC-401", y, u, np.full(n, 45.0), on, piece, PERIOD, *names)


def test_today_replayed_is_the_log_and_a_true_model_predicts_the_rest():
    tight = PIDGains(0.9, 0.9 / 250, 0.0, 0.0)
    before, after = logged(TODAY), logged(tight)
    found = replay(before, model(), [TODAY, tight], band=0.5)
    assert found.rows == (0, 600)
    for today, log in zip(found.loops[0], found.logged, strict=True):
        assert_close(today.low, log.value, rtol=2e-3)
        assert_close(today.high, log.value, rtol=2e-3)
    error = 45.0 - after.measurement
    truth = found.loops[1]
    assert_close(truth.error_deviation.value, np.std(error), rtol=5e-3)
    assert_close(truth.absolute_error.value, np.mean(np.abs(error)), rtol=5e-3)
    travel = np.mean(np.abs(np.diff(after.output))) * 360
    assert_close(truth.travel.value, travel, rtol=5e-3)
    assert truth.absolute_error.low < truth.absolute_error.high
    gap = before.rows(np.r_[0:20, 300:600])
    assert replay(gap, model(), [TODAY], band=0.5).rows == (20, 320)
    with pytest.raises(InputError, match="at least 32 rows"):
        replay(before.rows(np.s_[:20]), model(), [TODAY], band=0.5)
