"""The plant against an independent right-hand side, integrated by SciPy's Radau in float64."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from neorl_core.control import PID
from neorl_envs.blocks import runge_kutta
from neorl_envs.plants import ChemicalReactor
from neorl_envs.plants.chemical_reactor import Balances, Supply
from neorl_envs.plants.chemical_reactor._physics import HOURS, pressure, rates

DH, K0 = 950.0, 7.0


def right_hand_side(
    _t: float, x: np.ndarray, mf: float, T_in_M: float, T_in_EK: float
) -> np.ndarray:
    """The published balances, written down again from the reference: hours, kg, K, kJ."""
    mW, mA, mP, TR, TS, TM, TEK, TAWT, _ = x
    m = mW + mA + mP
    U = mP / (mA + mP)
    arrhenius = [K0 * np.exp(-8500.0 / (8.314 * T)) * (4.0 * (1 - U) + 32.0 * U) for T in (TR, TEK)]
    kA = 65.0 * (mW * 17280.0 + mA * 3600.0 + mP * 360.0) / m
    r1 = arrhenius[0] * (mA - mA * 200.0 / m)
    r2 = arrhenius[1] * 200.0 * mA / m
    alfa = 5 * 20e4 * 3.6
    return np.array(
        [
            0.333 * mf,
            0.667 * mf - r1 - r2,
            r1 + r2,
            (mf * 3.0 * (298.15 - TR) - kA * (TR - TS) - 2e4 * 5.0 * (TR - TEK) + DH * r1)
            / (5.0 * m),
            (kA * (TR - TS) - kA * (TS - TM)) / (0.47 * 39000.0),
            (3e5 * 4.2 * (T_in_M - TM) + kA * (TS - TM)) / (4.2 * 5000.0),
            (2e4 * 5.0 * (TR - TEK) - alfa * (TEK - TAWT) + r2 * DH) / (5.0 * 200.0),
            (1e5 * 4.2 * (T_in_EK - TAWT) - alfa * (TAWT - TEK)) / (4.2 * 1000.0),
            mf,
        ]
    )


def pressure_in_numpy(x: np.ndarray) -> float:
    mW, mA, mP, TR = x[:4]
    Vg = 50 - mW / 965 - mA / 850 - mP / 1150
    t = TR - 273.15
    water = 10 ** (8.07131 - 1730.63 / (233.426 + t)) * 1.01325 / 760
    vinyl_acetate = 10 ** (7.2101 - 1296.13 / (226.655 + t)) * 1.01325 / 760
    phi = (mA / 850) / (mA / 850 + mP / 1150)
    activity = phi * np.exp(1 - phi + 0.4 * (1 - phi) ** 2)
    return 0.25 * (38.7 / Vg) * (TR / 363.15) + water + activity * vinyl_acetate


def test_sixty_random_steps_agree_with_radau(env: ChemicalReactor) -> None:
    rng = np.random.default_rng(11)
    demanded = rng.uniform([0, 333.15, 333.15], [30000, 373.15, 373.15], (60, 3))
    with jax.enable_x64(True):
        params = env.default_params("clean", dtype=jnp.float64)
        state, _ = jax.jit(env.reset)(params, jax.random.key(0))
        step = jax.jit(env.step)
        expected = np.asarray(state.plant)
        worst = 0.0
        for action in demanded:
            state, answer = step(params, state, jnp.asarray(action), jax.random.key(0))
            expected = solve_ivp(
                right_hand_side, (0, HOURS), expected, "Radau",
                args=tuple(np.asarray(answer.applied)), rtol=1e-10, atol=1e-10,
            ).y[:, -1]  # fmt: skip
            worst = max(worst, np.max(np.abs(np.asarray(state.plant) / expected - 1)))
        info = jax.tree.map(np.asarray, answer.info)
        seen = np.asarray(answer.obs)
        assert seen.dtype == np.float64
    assert worst < 1e-8
    mass = expected[:3].sum()
    T_adiab = expected[3] + expected[1] * DH / (mass * 5.0)
    np.testing.assert_allclose(info.T_adiab, T_adiab, rtol=1e-8)
    np.testing.assert_allclose(info.P, pressure_in_numpy(expected), rtol=1e-7)
    # Clean: the instruments show the state itself.
    np.testing.assert_allclose(seen[:5], expected[3:8], rtol=1e-8)
    np.testing.assert_allclose(seen[5:8], expected[:3], rtol=1e-8)
    np.testing.assert_allclose(seen[9], T_adiab, rtol=1e-8)  # nominal heat: the estimate is true
    np.testing.assert_allclose(seen[11], 60 * 50 / 3600, rtol=1e-12)


@functools.partial(jax.jit, static_argnums=0)
def hundred_steps_under_pid(env: ChemicalReactor, params: Any, pid: PID) -> Balances:
    def step(carry, key):
        state, obs, memory = carry
        memory, action = pid(memory, obs)
        state, answer = env.step(params, state, action, key)
        return (state, answer.obs, pid.sent(memory, answer.applied)), state.plant

    state, obs = env.reset(params, jax.random.key(0))
    carry = (state, obs, pid.initial_carry())
    return jax.lax.scan(step, carry, jax.random.split(jax.random.key(0), 100))[1]


@pytest.mark.nightly
def test_float32_stays_within_a_millikelvin_of_float64_under_pid(env: ChemicalReactor) -> None:
    pid = env.tunings()[env.reference]
    single = hundred_steps_under_pid(env, env.default_params("clean"), pid)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), pid)
        params = env.default_params("clean", dtype=jnp.float64)
        double = hundred_steps_under_pid(env, params, wide)
        assert double.T_R.dtype == jnp.float64
    for name in ("T_R", "T_S", "T_M", "T_EK", "T_AWT"):
        difference = np.abs(np.asarray(getattr(single, name)) - np.asarray(getattr(double, name)))
        assert difference.max() < 1e-3, name


def test_integrator_converges_with_fourth_order(env: ChemicalReactor) -> None:
    with jax.enable_x64(True):
        params = env.default_params("clean", dtype=jnp.float64)
        state, _ = env.reset(params, jax.random.key(0))
        inputs = state.actuators.position.at[0].set(12_000.0)
        calm = Supply(*(jnp.zeros(()) for _ in Supply._fields))

        def later(plant: Balances, hours: float, substeps: int) -> Balances:
            given = (params.constants, inputs, calm)
            return runge_kutta(rates, plant, *given, width=hours, substeps=substeps)

        plant = later(state.plant, 0.02, 200)

        def after(substeps: int) -> np.ndarray:
            return np.asarray(later(plant, 20 / 3600, substeps))

        exact = after(1024)
        errors = [np.max(np.abs(after(n) / exact - 1)) for n in (32, 64, 128)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 4.0, atol=0.35)


def test_pressure_agrees_with_numpy_over_the_range_of_operation() -> None:
    rng = np.random.default_rng(2)
    lows = [9e3, 1.0, 20.0, 330.0, *[330.0] * 4, 0.0]
    states = rng.uniform(lows, [2e4, 8e3, 2e4, 400.0, *[400.0] * 4, 3e4], (50, 9))
    for x in states:
        plant = Balances(*jnp.asarray(x, jnp.float32))
        np.testing.assert_allclose(pressure(plant), pressure_in_numpy(x), rtol=1e-5)
