"""The works against equations written down again: pH by brentq, balances by SciPy in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from neorl_envs.plants import WaterTreatment
from neorl_envs.plants.water_treatment import (
    Dosing,
    Raw,
    Works,
    carbonate_of_water,
    ph_of_water,
)
from neorl_envs.plants.water_treatment._physics import advance


def ph_by_brentq(acid: float, carbonate: float) -> float:
    def excess(ph: float) -> float:
        first, second = 10 ** (6.35 - ph), 10 ** (ph - 10.25)
        water = 1e3 * 10 ** (ph - 14) - 1e3 * 10 ** (-ph)
        return acid + water + carbonate * (1 + 2 * second) / (1 + first + second)

    return brentq(excess, -1, 15, xtol=1e-13)


def test_ph_is_the_root_over_every_dose() -> None:
    """All of both dosing ranges on soft and hard water, and the textbook's neutralisation."""
    rng = np.random.default_rng(0)
    acid = np.concatenate([rng.uniform(-3.5, 2.5, 300), [-0.436, 3.0, -30.0, -3.05]])
    carbonate = np.concatenate([rng.uniform(0.0, 3.0, 300), [0.528, 0.0, 30.0, 0.05]])
    expected = [ph_by_brentq(*pair) for pair in zip(acid, carbonate, strict=True)]
    assert min(expected) < 3
    assert max(expected) > 11
    np.testing.assert_allclose(expected[300], 7.03, atol=0.01)  # Henson and Seborg's steady state
    single = ph_of_water(jnp.asarray(acid, jnp.float32), jnp.asarray(carbonate, jnp.float32))
    np.testing.assert_allclose(single, expected, atol=2e-3)
    with jax.enable_x64(True):
        double = ph_of_water(jnp.asarray(acid), jnp.asarray(carbonate))
        np.testing.assert_allclose(double, expected, atol=1e-9)
        back = carbonate_of_water(-jnp.asarray(acid), double)
        np.testing.assert_allclose(back, carbonate, atol=1e-9)


def right_hand_side(_t, x, alum, caustic, g, q, raw, demand) -> list[float]:
    """The balances, washing aside: per second."""
    turbidity, alkalinity, carbonate, temperature = raw
    wa, wb, n1, n2, n3, f1, f2, f3, pn, pf, sa, sb, s, ca, cb, level = x
    ph = ph_by_brentq(wa, wb)
    a = alum**2 / (alum**2 + (6 + 0.3 * turbidity) ** 2) * np.exp(-(((ph - 7) / 1.1) ** 2))

    def tank(n_in, f_in, n, f):
        grown = a * 6.75e-5 * g * n - 3e-8 * g**2 * f
        return (n_in - n) * q / 300 - grown, (f_in - f) * q / 300 + grown

    d1, e1 = tank(turbidity, 0.08 * alum, n1, f1)
    d2, e2 = tank(n1, f1, n2, f2)
    d3, e3 = tank(n2, f2, n3, f3)
    speed = 1.2e-3 * (40 / g) ** 0.3 * (1 + 0.02 * (temperature - 12))
    kept = 1 - np.exp(-speed * 500 / q)
    depth = 3.0 * max(1 + 1.2 * s - 0.55 * s**2, 0.2) * np.sqrt(0.5 / q)
    outlet = pn * np.exp(-0.6 * depth) + pf * np.exp(-1.2 * depth)
    well = q / (3000 * max(level, 0.1))
    return [
        q / 30 * (alum * 6 / 594 - caustic - alkalinity - wa), q / 30 * (carbonate - wb),
        d1, d2, d3, e1, e2, e3, q / 1500 * (n3 - pn), q / 1500 * ((1 - kept) * f3 - pf),
        q / 2400 * (wa - sa), q / 2400 * (wb - sb), q / 217 * (pn + pf - outlet) * 1.65e-3,
        well * (sa - ca), well * (sb - cb), (q - demand) / 3000,
    ]  # fmt: skip


def test_twelve_periods_agree_with_scipy_and_float32_with_float64() -> None:
    rng = np.random.default_rng(5)
    doses = rng.uniform([10, 0, 20, 0.35], [70, 0.8, 80, 0.65], (12, 4))
    env = WaterTreatment()
    ends = {}
    for dtype, substeps in ((jnp.float64, 8), (jnp.float32, 8), (jnp.float64, 64)):
        with jax.enable_x64(dtype == jnp.float64):
            params = env.default_params("clean", dtype=dtype)
            works, c = params.initial, params.constants
            step = jax.jit(functools.partial(advance, substeps=substeps))
            raw = Raw(*(jnp.asarray(v, dtype) for v in (40.0, 7.4, 0.7, 0.8, 9.0)))
            for dose in doses:
                given = Dosing(*(jnp.asarray(v, dtype) for v in dose))
                works = step(c, works, given, raw, jnp.asarray(0.5, dtype))
            ends[dtype, substeps] = np.asarray([*works])
    x = np.asarray([*env.initial][:16])
    for dose in doses:
        x = solve_ivp(
            right_hand_side, (0, 300), x, "LSODA", args=(*dose, (40.0, 0.7, 0.8, 9.0), 0.5),
            rtol=1e-8, atol=1e-10,
        ).y[:, -1]  # fmt: skip
    standard, single, fine = ends.values()
    assert standard[16] == env.initial.run + 3600  # the filter was not washed meanwhile
    # Doses jump here by half their range; the limited ones of the plant are followed more closely.
    np.testing.assert_allclose(standard[:16], x, rtol=4e-3, atol=1e-4)
    np.testing.assert_allclose(fine[:16], x, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(single, standard, rtol=2e-5, atol=2e-5)


def test_a_full_filter_is_washed_and_water_is_counted() -> None:
    """Level and deposit over a backwash: what is filtered, sold and used for washing adds up."""
    env = WaterTreatment()
    params = env.default_params("clean")
    step = jax.jit(advance)
    raw = Raw(*map(jnp.asarray, (8.0, 7.5, 1.0, 1.1, 12.0)))
    dose = Dosing(*map(jnp.asarray, (20.0, 0.15, 40.0, 0.5)))
    works: Works = params.initial._replace(deposit=jnp.asarray(2.0))
    levels, washing, deposit = [float(works.level)], [], []
    for _ in range(5):
        works = step(params.constants, works, dose, raw, jnp.asarray(0.4))
        levels.append(float(works.level))
        washing.append(float(works.washing))
        deposit.append(float(works.deposit))
    assert washing == [600.0, 300.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(deposit[:3], 0.1, rtol=1e-6)
    assert deposit[4] > deposit[3] > 0.1
    moved = np.diff(levels) * 3000
    np.testing.assert_allclose(moved, [-1420, -120, -120, 30, 30], atol=0.02)
    np.testing.assert_allclose(float(works.run), 600.0)


def test_a_wash_waits_for_water_and_what_is_spilled_is_counted() -> None:
    env = WaterTreatment()
    params = env.default_params("clean")
    raw = Raw(*map(jnp.asarray, (8.0, 7.5, 1.0, 1.1, 12.0)))
    dose = Dosing(*map(jnp.asarray, (20.0, 0.15, 40.0, 0.5)))
    step = jax.jit(advance)
    low = params.initial._replace(deposit=jnp.asarray(2.0), level=jnp.asarray(1.2))
    after = step(params.constants, low, dose, raw, jnp.asarray(0.4))
    assert float(after.washing) == 0
    assert float(after.deposit) > 2
    np.testing.assert_allclose(float(after.level), 1.21, atol=1e-5)
    full = params.initial._replace(level=jnp.asarray(3.995))
    after = step(params.constants, full, dose, raw, jnp.asarray(0.4))
    np.testing.assert_allclose(float(after.spilled), 30 - 0.005 * 3000, atol=0.01)
    assert float(after.level) == 4
