"""Loops, valves and signals whose figures are known: by formulas, by papers, by python-control."""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal

from neorl_core.control import standard_pid
from neorl_core.linear_systems import identify_arx
from neorl_core.loops import (
    VENDOR_FORMS,
    Faceplate,
    HarrisIndex,
    LoopHealth,
    LoopMargins,
    Oscillation,
    PIDForm,
    PIDGains,
    SampledModel,
    StepFigures,
    StepResponse,
    StictionCorrelation,
    StictionFit,
    TransferFunction,
    ValveState,
    VendorForm,
    choudhury_step,
    faceplate,
    harris_index,
    he_step,
    loop_health,
    loop_margins,
    oscillation,
    pid_gains,
    step_figures,
    step_response,
    stiction_correlation,
    stiction_curve_fit,
    valve_state,
)

STORED = Path(__file__).parents[1] / "fixtures" / "control_loops.json"
RECORD = json.loads(STORED.read_text())["loops"]
ON = np.ones(4000, bool)


def test_the_forms_of_vendors_make_the_loop_of_their_manual():
    assert all(isinstance(entry, VendorForm) and entry.manual for entry in VENDOR_FORMS.values())
    spans = {"measurement_span": 30.0, "output_span": 60.0}
    forms = {name: dataclasses.replace(entry.form, **spans) for name, entry in VENDOR_FORMS.items()}
    # A gain of 2 %/%, four minutes per repeat and half a minute: 4 units per unit, 240 s and 30 s.
    shown = {
        "Rockwell PIDE, dependent gains": (2.0, 4.0, 0.5, 10.0),
        "Rockwell PIDE, independent gains": (2.0, 0.5, 1.0, 10.0),
        "Rockwell PID, dependent gains": (2.0, 4.0, 0.5, 10.0),
        "Rockwell PID, independent gains": (2.0, 2.0 / 240, 60.0, 10.0),
        "Siemens PID_Compact": (4.0, 240.0, 30.0, 0.1),
        "Emerson fieldbus PID, standard": (2.0, 240.0, 30.0, 0.1),
        "GE fieldbus PID": (2.0, 240.0, 30.0, 10.0),
    }
    for name, numbers in shown.items():
        gains = pid_gains(Faceplate(*numbers), form=forms[name])
        np.testing.assert_allclose(gains, (4.0, 4 / 240, 120.0, 3.0), rtol=1e-6, err_msg=name)
    form = dataclasses.replace(forms["Emerson fieldbus PID, standard"], structure="series")
    series = pid_gains(Faceplate(2.0, 240.0, 30.0, 0.0), form=form)
    np.testing.assert_allclose(series, (4.5, 4 / 240, 120.0, 0.0), rtol=1e-6)
    assert set(shown) == set(VENDOR_FORMS)
    with pytest.raises(ValueError, match="structure must be one of standard, parallel, series"):
        PIDForm("interacting")
    with pytest.raises(ValueError, match="measurement_span must be finite and positive"):
        PIDForm(measurement_span=0.0)


@pytest.mark.parametrize("structure", ["standard", "parallel", "series"])
def test_a_faceplate_comes_back_exactly(structure):
    """Every digit that a faceplate shows, equal series times and missing actions included."""
    form = PIDForm(structure, "band", "minutes", "minutes", "ratio", "percent", 30.0, 80.0)
    numbers = [(12.5, 20.0, 5.0, 0.1), (333.3, 0.37, 0.0, 0.0), (80.0, np.inf, 1.7, 0.05)]
    if structure == "series":
        numbers.append((50.0, 3.0, 3.0, 0.0))
    for width, digits in ((False, 5), (True, 12)):
        with jax.enable_x64(width):
            for shown in numbers:
                gains = pid_gains(Faceplate(*shown), form=form)
                assert isinstance(gains, PIDGains)
                back = faceplate(gains, form=form)
                assert [f"{float(n):.{digits}g}" for n in back] == [
                    f"{n:.{digits}g}" for n in shown
                ]


def test_an_integrator_with_dead_time_has_the_margins_of_its_formula():
    """``k exp(-L s) / s``: crossovers ``k`` and ``pi / (2 L)``."""
    gain, dead_time = np.asarray([0.1, 0.5, 1.2, 1.58], np.float32), 1.0
    process = TransferFunction(jnp.ones(1), jnp.asarray([1.0, 0.0]), dead_time)
    zero = jnp.zeros(())
    found = jax.vmap(lambda k: loop_margins(process, PIDGains(k, zero, zero, zero)))(
        jnp.asarray(gain)
    )
    assert isinstance(found, LoopMargins)
    assert found.stable.tolist() == [True, True, True, False]
    np.testing.assert_allclose(found.gain_margin[:3], np.pi / 2 / gain[:3], rtol=1e-5)
    np.testing.assert_allclose(found.phase_margin[:3], 90 - np.degrees(gain[:3]), rtol=1e-5)
    np.testing.assert_allclose(found.delay_margin[:3], np.pi / 2 / gain[:3] - 1, rtol=1e-5)
    np.testing.assert_allclose(found.gain_crossover[:3], gain[:3], rtol=1e-5)
    assert all(np.isnan(number[3]) for number in found[1:])


@pytest.mark.nightly
def test_a_first_order_lag_with_dead_time_has_the_margins_of_its_formula():
    """The PI whose integral time is the lag leaves an integrator with dead time."""
    process = TransferFunction(jnp.asarray([2.0]), jnp.asarray([10.0, 1.0]), jnp.asarray(4.0))
    kp = 0.6
    found = loop_margins(process, PIDGains(kp, kp / 10, 0.0, 0.0))
    crossover = 2 * kp / 10
    np.testing.assert_allclose(found.gain_margin, np.pi / 2 / 4 / crossover, rtol=1e-5)
    np.testing.assert_allclose(found.delay_margin, np.pi / 2 / crossover - 4, rtol=1e-5)


def stacked(names):
    """Loops of one shape: processes, gains and periods."""
    entries = [RECORD[name] for name in names]
    process = [[np.asarray(entry["process"][i]) for entry in entries] for i in range(3)]
    gains = PIDGains(
        *(jnp.asarray(column) for column in zip(*[e["gains"] for e in entries], strict=True))
    )
    dt = jnp.asarray([entry["dt"] for entry in entries])
    return TransferFunction(*(jnp.asarray(np.stack(part)) for part in process)), gains, dt


def of_shapes():
    shapes = {}
    for name, entry in RECORD.items():
        shape = tuple(len(part) for part in entry["process"][:2])
        shapes.setdefault(shape, []).append(name)
    return shapes


def agrees(found, record, where):
    """Each margin of each stored loop to a relative 1e-4."""
    for index, entry in enumerate(record):
        assert bool(found.stable[index]) == entry["stable"], where
        for field in set(entry) - {"stable"}:
            ours, theirs = float(getattr(found, field)[index]), entry[field]
            close = ours == theirs or np.isclose(ours, theirs, rtol=1e-4, atol=1e-5)
            assert close, f"{where[index]}, {field}: {ours}, python-control {theirs}"


@pytest.mark.nightly
@pytest.mark.parametrize("shape", of_shapes())
def test_margins_are_those_of_python_control(shape):
    names = of_shapes()[shape]
    process, gains, dt = stacked(names)
    entries = [RECORD[name] for name in names]
    continuous = jax.vmap(loop_margins)(process, gains)
    agrees(continuous, [entry["continuous"] for entry in entries], names)
    sampled = jax.vmap(lambda p, g, t: loop_margins(p, g, dt=t))(process, gains, dt)
    agrees(sampled, [entry["sampled"] for entry in entries], names)


@pytest.mark.nightly
@pytest.mark.parametrize("name", RECORD)
def test_a_sampled_model_has_the_margins_of_its_process(name):
    entry = RECORD[name]
    with jax.enable_x64(True):
        model = SampledModel(*(jnp.asarray(entry["model"][part]) for part in ("a", "b", "delay")))
        found = loop_margins(model, PIDGains(*entry["gains"]), dt=entry["dt"])
    one = jax.tree.map(lambda leaf: leaf[None], found)
    agrees(one, [entry["sampled"]], [name])


def random_loops(seed, count):
    """Sampled processes with real, resonant, integrating and runaway poles, under random gains."""
    rng, loops = np.random.default_rng(seed), []
    while len(loops) < count:
        lags = -1 / np.exp(rng.uniform(0.4, 5.3, 3))
        frequency, damping = np.exp(rng.uniform(-4, 0)), rng.uniform(0.05, 0.9)
        resonant = np.r_[lags[0], np.roots([1, 2 * damping * frequency, frequency**2])]
        poles = [lags, resonant, lags * [0, 1, 1], lags * [-0.5, 1, 1]][rng.integers(4)]
        gain = np.prod(-poles[poles != 0]).real
        zero = gain * np.asarray([rng.uniform(-5, 5), rng.choice([1.0, 1.0, -1.0])])
        above, below, _ = signal.cont2discrete((zero, np.poly(poles).real), 1.0)
        kp = np.exp(rng.uniform(-4, 2))
        ki, kd = (
            kp / np.exp(rng.uniform(1, 6)),
            kp * np.exp(rng.uniform(-2, 2)) * (rng.random() < 0.5),
        )
        model = -below[1:], above.ravel()[1:], rng.integers(0, 30)
        loops.append((model, (kp, ki * (rng.random() < 0.85), kd, np.exp(rng.uniform(-2, 2)))))
    return loops


def largest_pole(model, gains, factor):
    """Size of the slowest pole of the closed loop; polynomials in ``1 / z``, constant first."""
    (a, b, delay), (kp, ki, kd, tau) = model, gains
    share = tau / (tau + 1.0)
    lag, change, poly = [1.0, -share], [1.0, -1.0], np.polynomial.polynomial
    whole = poly.polymul(lag, change) if ki else lag
    above = poly.polyadd(kp * np.asarray(whole), ki * np.asarray(lag))
    slope = poly.polymul(change, change) if ki else change
    above = poly.polyadd(above, kd * (1 - share) * np.asarray(slope))
    plant = factor * np.r_[np.zeros(delay + 1), b]
    characteristic = poly.polyadd(poly.polymul(np.r_[1.0, -a], whole), poly.polymul(plant, above))
    return np.max(np.abs(np.roots(characteristic)))


@pytest.mark.nightly
def test_the_gain_margin_is_where_a_pole_leaves_the_circle():
    """Of two hundred loops, most of them unstable: every verdict, and every bound of the gain."""
    loops = random_loops(0, 200)
    with jax.enable_x64(True):
        parts = zip(*(model for model, _ in loops), strict=True)
        models = SampledModel(*(jnp.asarray(np.stack(part)) for part in parts))
        gains = PIDGains(*jnp.asarray([gains for _, gains in loops]).T)
        found = jax.jit(jax.vmap(lambda m, g: loop_margins(m, g, dt=1.0)))(models, gains)
    stable = [largest_pole(model, gains, 1.0) < 1 for model, gains in loops]
    assert found.stable.tolist() == stable
    assert 20 < sum(stable) < 180
    for index in np.flatnonzero(stable):
        up, down = (float(bound[index]) for bound in found[1:3])
        poles = functools.partial(largest_pole, *loops[index])
        assert poles(min(0.999 * up, 50.0)) < 1
        assert np.isinf(up) or poles(1.001 * up) > 1
        assert down == 0 or poles(0.999 * down) > 1 > poles(1.001 * down)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in RECORD if "responses" in RECORD[name]])
@pytest.mark.parametrize("kind", ["setpoint", "load"])
def test_responses_are_those_of_python_control(name, kind):
    entry = RECORD[name]
    expected = np.asarray(entry["responses"][kind])
    gains, options = (
        PIDGains(*entry["gains"]),
        {"dt": entry["dt"], "steps": len(expected), kind: 1.0},
    )
    numerator, denominator, dead_time = entry["process"]
    process = TransferFunction(jnp.asarray(numerator), jnp.asarray(denominator), dead_time)
    model = SampledModel(*(jnp.asarray(entry["model"][part]) for part in ("a", "b", "delay")))
    for plant in (process, model):
        found = step_response(plant, gains, **options)
        np.testing.assert_allclose(found.measurement, expected, atol=1e-5)


def test_a_loop_without_dynamics_is_a_matter_of_arithmetic():
    """One lag of one period under a proportional controller, by hand."""
    model = SampledModel(jnp.zeros(0), jnp.asarray([1.0]), 0)
    response = step_response(model, PIDGains(0.5, 0.0, 0.0, 0.0), dt=1.0, steps=4, setpoint=1.0)
    assert isinstance(response, StepResponse)
    np.testing.assert_allclose(response.measurement, [0, 0.5, 0.25, 0.375])
    np.testing.assert_allclose(response.output, [0.5, 0.25, 0.375, 0.3125])
    figures = step_figures(*response, setpoint=1.0, dt=1.0)
    assert isinstance(figures, StepFigures)
    np.testing.assert_allclose(figures.absolute_error, 1 + 0.5 + 0.75 + 0.625)
    assert np.isinf(figures.settling_time)
    assert np.isnan(step_figures(*response, setpoint=0.0, dt=1.0).overshoot)


@pytest.mark.nightly
def test_the_loop_is_that_of_the_pid_policy():
    """The simulated controller, step by step, is the one that runs; so are its margins' gains."""
    pid = standard_pid(
        gain=0.8, integral_time=8.0, derivative_time=1.25, derivative_filter=6.25, dt=0.5,
        setpoint=1.0, low=-100, high=100,
    )  # fmt: skip
    gains = PIDGains(pid.kp[0], pid.ki[0], pid.kd[0], pid.tau[0])
    response = step_response(
        SampledModel(jnp.asarray([0.9]), jnp.asarray([0.2]), 1),
        gains,
        dt=0.5,
        steps=30,
        setpoint=1.0,
    )
    carry = pid.initial_carry()
    for measurement, output in zip(*response, strict=True):
        carry, action = pid(carry, measurement[None])
        np.testing.assert_allclose(action[0], output, atol=2e-6)


@pytest.mark.nightly
def test_an_identified_loop_has_the_margins_of_its_process():
    """An ARX model of one loop is a sampled model."""
    rng = np.random.default_rng(3)
    y, u = np.zeros(2001), rng.normal(size=2000)
    for t in range(2000):
        y[t + 1] = 0.9 * y[t] + (0.2 * u[t - 2] if t > 1 else 0)
    ends = np.zeros(2000, bool)
    model = identify_arx(
        y[:-1, None], u[:, None], y[1:, None], ends, ends, output_lags=1, input_lags=1, delay=2
    )
    gains = PIDGains(1.0, 0.1, 0.0, 0.0)
    found = loop_margins(SampledModel(model.a[:, 0, 0], model.b[:, 0, 0], 2), gains, dt=1.0)
    true = loop_margins(SampledModel(jnp.asarray([0.9]), jnp.asarray([0.2]), 2), gains, dt=1.0)
    np.testing.assert_allclose(found.gain_margin, true.gain_margin, rtol=1e-3)
    np.testing.assert_allclose(found.peak_sensitivity, true.peak_sensitivity, rtol=1e-3)


@pytest.mark.nightly
def test_rows_of_nothing_have_no_figures():
    """A masked record is NaN, and nothing else."""
    off, nan = np.zeros(30, bool), np.full(30, np.nan, np.float32)
    health = loop_health(nan, nan, nan, off, off, dt=1.0, low=0.0, high=1.0)
    assert isinstance(health, LoopHealth)
    assert health.rows == 0
    assert health.service_factor == 0
    assert all(np.isnan(getattr(health, name)) for name in ("automatic", "travel", "noise"))
    nothing = (
        harris_index(nan, off, delay=1, order=2, blocks=2)[:4],
        oscillation(nan, off, dt=1.0, max_lag=10)[:2],
        stiction_curve_fit(nan, off, half_periods=3)[:1],
        stiction_correlation(nan, nan, off, max_lag=10),
    )
    assert [len(figures) for figures in nothing] == [4, 2, 1, 2]
    assert all(np.isnan(figures).all() for figures in nothing)
    empty = (HarrisIndex, Oscillation, StictionFit, StictionCorrelation)
    assert [len(kind._fields) for kind in empty] == [5, 3, 2, 2]


@pytest.mark.nightly
@pytest.mark.parametrize("delay", [1, 3])
def test_the_harris_index_is_that_of_the_formula(delay):
    """AR(1), and an ARMA(1, 1) through its impulse response; inside its interval in 9 of 10."""
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(20, 4100))
    for moving, expected in ((0.0, 1 - 0.8 ** (2 * delay)), (0.5, None)):
        impulses = np.r_[1.0, (0.8 + moving) * 0.8 ** np.arange(400)]
        if expected is None:
            expected = np.sum(impulses[:delay] ** 2) / np.sum(impulses**2)
        error = np.zeros_like(noise)
        for t in range(1, noise.shape[1]):
            error[:, t] = 0.8 * error[:, t - 1] + noise[:, t] + moving * noise[:, t - 1]
        index = jax.vmap(lambda e: harris_index(e, ON, delay=delay))(
            error[:, 100:].astype(np.float32)
        )
        np.testing.assert_allclose(np.mean(index.index), expected, rtol=0.03)
        assert np.mean((index.low < expected) & (expected < index.high)) >= 0.8


@pytest.mark.nightly
def test_a_known_wave_is_found_in_noise_and_noise_is_no_wave():
    rng = np.random.default_rng(5)
    time = np.arange(4000)
    wave = np.sin(2 * np.pi * time / 83.0) + rng.normal(size=4000)
    found = oscillation(wave.astype(np.float32), ON, dt=2.0, max_lag=1000)
    np.testing.assert_allclose(found.period, 166.0, rtol=0.01)
    assert found.regularity > 1
    noise = oscillation(rng.normal(size=4000).astype(np.float32), ON, dt=2.0, max_lag=1000)
    assert noise.regularity < 1


def positions(step, signal, **parameters):
    state, result = valve_state(float(signal[0])), []
    assert isinstance(state, ValveState)
    for one in signal:
        state, position = step(state, float(one), **parameters)
        result.append(float(position))
    return result


def test_valves_do_what_their_papers_tabulate():
    """Perfect valve, pure deadband, stick-slip with undershoot, without offset, with overshoot."""
    up, down = [50.0, 52.0, 54.0, 56.0], [54.0, 52.0, 50.0, 48.0]
    cases = {
        (0.0, 0.0): [50, 52, 54, 56, 54, 52, 50, 48],
        # Half the band behind the signal, and at rest over all of it after the turn.
        (3.0, 0.0): [50, 50, 52.5, 54.5, 54.5, 53.5, 51.5, 49.5],
        (3.0, 1.0): [50, 50, 53, 55, 55, 53, 51, 49],
        (3.0, 3.0): [50, 50, 54, 56, 56, 52, 50, 48],
        (3.0, 5.0): [50, 50, 55, 57, 57, 51, 49, 47],
    }
    for (stickband, slip_jump), expected in cases.items():
        found = positions(choudhury_step, up + down, stickband=stickband, slip_jump=slip_jump)
        assert found == expected, (stickband, slip_jump)
    # Static above dynamic friction: it moves in jumps; both equal: pure deadband.
    assert positions(he_step, up + down, static=3.0, dynamic=1.0) == [
        50, 50, 53, 53, 53, 53, 53, 49,
    ]  # fmt: skip
    assert positions(he_step, up + down, static=1.5, dynamic=1.5) == [
        50, 50.5, 52.5, 54.5, 54.5, 53.5, 51.5, 49.5,
    ]  # fmt: skip


def loop_with_valve(valve, disturbance):
    """Output and measurement of a lag with dead time under a PI, with a valve and a disturbance."""

    def step(carry, load):
        y, past, integral, state = carry
        integral = integral + 0.03 * (50 - y)
        u = 0.3 * (50 - y) + integral
        state, position = valve(state, u)
        y = 0.95 * y + 0.05 * (past[-1] + load)
        return (y, jnp.roll(past, 1).at[0].set(position), integral, state), (u, y)

    start = (jnp.asarray(50.0), jnp.full(3, 50.0), jnp.asarray(50.0), valve_state(49.0))
    return jax.lax.scan(step, start, disturbance)[1]


@pytest.mark.nightly
def test_both_indices_tell_a_sticking_valve_from_an_outside_oscillation():
    """Of the same period, with the noise of a sensor."""
    rng = np.random.default_rng(11)
    time = np.arange(3000)
    outside = jnp.asarray(4 * np.sin(2 * np.pi * time / 150), jnp.float32)
    calm = jnp.zeros(3000)
    valves = {
        "choudhury": (lambda s, u: choudhury_step(s, u, stickband=5.0, slip_jump=2.0), calm),
        "he": (lambda s, u: he_step(s, u, static=3.5, dynamic=1.5), calm),
        "outside": (lambda s, u: (s, u), outside),
    }
    for name, (valve, disturbance) in valves.items():
        u, y = loop_with_valve(valve, disturbance)
        u, y = u[1000:], y[1000:] + jnp.asarray(0.02 * rng.normal(size=2000), jnp.float32)
        fit = stiction_curve_fit(u, ON[:2000])
        correlation = stiction_correlation(u, y, ON[:2000], max_lag=400)
        if name == "outside":
            assert fit.index < 0.4
            assert oscillation(y, ON[:2000], dt=1.0, max_lag=1000).regularity > 1
        else:
            assert fit.index > 0.6
            assert correlation.shift > 2 / 3
            assert correlation.drop > 1 / 3
