"""The furnace against its balances written down again, integrated by SciPy in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from neorl_envs.plants import SteelAnnealing
from neorl_envs.plants.steel_annealing import Coil, Furnace
from neorl_envs.plants.steel_annealing._physics import advance, heat_capacity

SIGMA, RHO, PERIOD = 5.670374e-8, 7850.0, 20.0


def specific_heat(t: np.ndarray) -> np.ndarray:
    c = np.empty_like(t)
    for i, x in enumerate(t):
        if x < 600:
            c[i] = 425 + 0.773 * x - 1.69e-3 * x**2 + 2.22e-6 * x**3
        elif x < 735:
            c[i] = 1500.0 if x >= 738 - 13002 / 834 else 666 + 13002 / (738 - x)
        elif x < 900:
            c[i] = 1500.0 if x <= 731 + 17820 / 955 else 545 + 17820 / (x - 731)
        else:
            c[i] = 650.0
    return c


def right_hand_side(
    _t: float, y: np.ndarray, fuel: np.ndarray, wanted: float, old: Any, new: Any
) -> np.ndarray:
    """The method of lines: 60 cells, 6 zones, speed, weld; a cell with the weld in it is both."""
    strip, zones, speed, weld = y[:60], y[60:66], y[66], y[67]
    heat, rate = np.zeros(60), np.zeros(60)
    capacity = specific_heat(strip)
    for j in range(60):
        part = min(max((weld - 2 * j) / 2, 0.0), 1.0)
        flux = 2 * 0.3 * SIGMA * ((zones[j // 10] + 273.15) ** 4 - (strip[j] + 273.15) ** 4)
        mass = part / (new[0] * 1e-3) + (1 - part) / (old[0] * 1e-3)
        upstream = strip[j - 1] if j else 30.0
        rate[j] = flux * mass / (RHO * capacity[j]) - speed * (strip[j] - upstream) / 2
        heat[j] = flux * (part * new[1] + (1 - part) * old[1]) * 2
    zone_rate = np.zeros(6)
    for k in range(6):
        burnt = 0.7 * (1 - 2e-4 * (zones[k] - 900)) * 3.25e6 * fuel[k]
        neighbours = sum(1500 * (zones[i] - zones[k]) for i in (k - 1, k + 1) if 0 <= i < 6)
        lost = 700 * (zones[k] - 30) + heat[10 * k : 10 * k + 10].sum()
        zone_rate[k] = (burnt - lost + neighbours) / 5e6
    return np.concatenate([rate, zone_rate, [(wanted - speed) / 10, speed]])


@pytest.fixture(scope="module")
def weld() -> tuple[Furnace, Coil]:
    """A furnace that a weld will pass, from thin and narrow to thick and wide."""
    coils = Coil(0.6, 1.0, 720.0, 900.0), Coil(1.1, 1.3, 780.0, 900.0), Coil(0.9, 1.2, 750.0, 900.0)
    env = SteelAnnealing()
    start = env.initial._replace(speed=2.8, entered=780.0, leaving=coils[0], coil=coils[0])
    return start._replace(coming=coils[1]), coils[2]


def test_a_weld_passes_as_in_an_independent_integration(weld: tuple[Furnace, Coil]) -> None:
    """Ten periods, compared one by one while the weld enters, is inside and leaves."""
    fuel = np.random.default_rng(3).uniform(0.5, 1.0, (10, 6))
    start, following = weld
    with jax.enable_x64(True):
        c = SteelAnnealing().default_params("clean", dtype=jnp.float64).constants
        collected = {}
        for substeps in (25, 200):
            plant, coming = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), weld)
            step = jax.jit(
                lambda p, u, n=substeps, f=coming: advance(c, p, u, c.ambient, f, substeps=n)
            )
            plants = []
            for u in fuel:
                plant = step(plant, jnp.asarray(u))
                plants.append(jax.tree.map(np.asarray, plant))
            collected[substeps] = plants
    old, new = (np.asarray(coil)[:2] for coil in (start.coil, start.coming))
    speeds = [np.clip(15.5 / (RHO * d * 1e-3 * w), 1.2, 2.8) for d, w in (old, new)]
    # The first coil ends within three periods; its length is then the weld's origin.
    y = np.concatenate([start.strip, start.zones, [start.speed, start.entered - 900.0]])
    inside, worst = 0, 0.0
    for i, u in enumerate(fuel):
        at = y[67]
        wanted = speeds[1] if at >= 120 else speeds[0] if at <= 0 else min(speeds)
        y = solve_ivp(
            right_hand_side, (0, PERIOD), y, "RK45", args=(u, wanted, old, new), rtol=1e-6,
            atol=1e-6, max_step=1.0,
        ).y[:, -1]  # fmt: skip
        inside += 0 < y[67] < 120
        # 25 steps of fourth order; with an eighth of the step only the jump's own error is left.
        for substeps, kelvin in ((25, 0.6), (200, 0.05)):
            plant = collected[substeps][i]
            np.testing.assert_allclose(plant.strip, y[:60], atol=kelvin)
            np.testing.assert_allclose(plant.zones, y[60:66], atol=0.005)
            np.testing.assert_allclose(plant.speed, y[66], atol=2e-3)
            if substeps == 25:
                worst = max(worst, float(np.abs(plant.strip - y[:60]).max()))
    assert inside >= 2
    assert y[67] > 120
    assert worst > 0.005  # the comparison sees the step
    assert np.asarray(collected[25][-1].coil)[:2].tolist() == new.tolist()
    assert float(collected[25][-1].coming.thickness) == following.thickness


def test_heat_capacity_is_that_of_the_standard() -> None:
    """Values from EN 1993-1-2, figure 3.4, computed by hand; and the cut of the peak."""
    at = jnp.asarray([20.0, 300.0, 599.9, 700.0, 735.0, 800.0, 900.0, 1100.0])
    by_hand = [439.8, 564.7, 759.9, 1008.2, 1500.0, 803.3, 650.0, 650.0]
    np.testing.assert_allclose(heat_capacity(at), by_hand, rtol=3e-4)
    wide = np.linspace(0, 1000, 4001)
    np.testing.assert_allclose(heat_capacity(jnp.asarray(wide, jnp.float32)), specific_heat(wide),
                               rtol=2e-3)  # fmt: skip


def test_heat_is_conserved_and_float32_is_enough(weld: tuple[Furnace, Coil]) -> None:
    """At rest, fuel is what losses and strip take; single precision follows double."""
    env = SteelAnnealing()
    ends = {}
    for dtype in (jnp.float32, jnp.float64):
        with jax.enable_x64(dtype == jnp.float64):
            c = env.default_params("clean", dtype=dtype).constants
            plant = env.default_params("clean", dtype=dtype).initial

            def period(_: Any, p: Any, c: Any = c) -> Any:
                fuel = jnp.full(6, 0.8, c.burner.dtype)
                return advance(c, p, fuel, c.ambient, p.coming)

            ends[dtype] = jax.jit(lambda p, f=period: jax.lax.fori_loop(0, 400, f, p))(plant)
    single, double = (jax.tree.map(np.asarray, ends[d]) for d in (jnp.float32, jnp.float64))
    np.testing.assert_allclose(single.strip, double.strip, atol=0.02)
    np.testing.assert_allclose(single.zones, double.zones, atol=0.01)
    zones, strip = double.zones, double.strip
    burnt = (0.7 * (1 - 2e-4 * (zones - 900)) * 3.25e6 * 0.8).sum()
    lost = (700 * (zones - 30)).sum()
    # The strip leaves with what its heat capacity adds up to between the cells.
    upstream = np.concatenate([[30.0], strip[:-1]])
    taken = (specific_heat(strip) * (strip - upstream)).sum() * RHO * 0.9e-3 * 1.2 * double.speed
    np.testing.assert_allclose(burnt - lost, taken, rtol=1e-3)
