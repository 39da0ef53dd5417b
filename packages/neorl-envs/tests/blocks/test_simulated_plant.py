"""Plants from declarations: a quadruple tank made of blocks."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_core import Channel, CostChannel, InputError
from neorl_envs.blocks import Actuator, Instrument, Limit, Term, constant, runge_kutta
from neorl_envs.plants import Moment, SimulatedPlant

SOURCE = "Johansson 2000, IEEE Trans. Control Syst. Technol. 8:456"


class Constants(NamedTuple):
    pumps: Array = constant((3.33, 3.35), "cm3/(V s)", SOURCE, spread=1.0)
    split: Array = constant((0.70, 0.60), "1", SOURCE)
    areas: Array = constant((28.0, 32.0, 28.0, 32.0), "cm2", SOURCE)
    holes: Array = constant((0.071, 0.057, 0.071, 0.057), "cm2", SOURCE)
    gravity: Array = constant(981.0, "cm/s2", SOURCE)


class QuadrupleTank(SimulatedPlant):
    horizon: int = eqx.field(static=True, default=20)
    name = "QuadrupleTank-v0"
    dt = 10.0
    constants = Constants()
    initial = (12.4, 12.7, 1.8, 1.4)
    initial_spread = (1.0, 1.0, 0.1, 0.1)
    instruments = tuple(
        Instrument(Channel(f"h{i}", "cm", 0.0, 25.0), sd=0.05, dead_time=i % 2) for i in range(4)
    )
    actuators = tuple(
        Actuator(Channel(f"v{i}", "V", 0.0, 10.0), start=3.0, speed=0.05, lag=5.0, dead_time=2)
        for i in range(2)
    )
    costs = (CostChannel("high_level", "cm min", 5.0, "episode"),)
    limits = (
        Limit("level", high=16.0, cost="high_level", factor=10 / 60, channel="h0"),
        Limit("level", high=25.0, trip=True),
    )

    def evolve(self, c: Any, plant: Any, inputs: Array, disturbance: Any, time: Array) -> Any:
        def rates(levels: Any) -> Any:
            out = c.holes * jnp.sqrt(2 * c.gravity * jnp.maximum(jnp.stack(levels), 0))
            (g1, g2), (f1, f2) = c.split, c.pumps * inputs
            into = [g1 * f1 + out[2], g2 * f2 + out[3], (1 - g2) * f2, (1 - g1) * f1]
            return tuple((jnp.stack(into) - out) / c.areas)

        return runge_kutta(rates, plant, width=self.dt, substeps=10)

    def measure(self, c: Any, now: Moment) -> Array:
        return jnp.stack(now.plant)

    def quantities(self, c: Any, now: Moment) -> dict[str, Array]:
        return {"level": jnp.stack(now.plant)}

    def reward(self, c: Any, before: Moment, now: Moment, trip: Array) -> Array:
        return -jnp.abs(jnp.stack(now.plant)[:2] - 14.0).sum() - jnp.where(trip, 100.0, 0.0)


def drive(env: QuadrupleTank, params: Any, action: Any, steps: int, key: int = 0) -> Any:
    """The steps of one episode under a constant demand, and its first observation."""

    @jax.jit
    def run(params: Any, action: Array, key: Array) -> Any:
        state, first = env.reset(params, key)

        def one(state: Any, key: Array) -> Any:
            return env.step(params, state, action, key)

        _, answers = jax.lax.scan(one, state, jax.random.split(key, steps))
        return answers, first

    return run(params, jnp.asarray(action), jax.random.key(key))


@pytest.fixture(scope="module")
def tank() -> QuadrupleTank:
    return QuadrupleTank()


def test_commands_respect_speed_then_wait_and_lag(tank: QuadrupleTank) -> None:
    steps, first = drive(tank, tank.default_params()._replace(), [5.0, 3.0], 6)
    # 0.5 V a period; what is applied is the command, not what has arrived.
    np.testing.assert_allclose(steps.applied[:, 0], [3.5, 4.0, 4.5, 5.0, 5.0, 5.0], rtol=1e-6)
    clean, first_clean = drive(tank, tank.default_params("clean"), [5.0, 3.0], 6)
    np.testing.assert_allclose(clean.applied, steps.applied)
    assert not np.allclose(first, first_clean)
    np.testing.assert_allclose(first_clean, tank.initial, rtol=1e-6)
    # Dead time of two periods and a lag of 5 s: by hand, from the same commands.
    position, arrived = 3.0, [3.0, 3.0, 3.5, 4.0, 4.5, 5.0]
    for command in arrived[:4]:
        position += (1 - np.exp(-2.0)) * (command - position)
    state, _ = tank.reset(tank.default_params(), jax.random.key(0))
    for _ in range(4):
        state, _ = tank.step(
            tank.default_params(), state, jnp.asarray([5.0, 3.0]), jax.random.key(1)
        )
    np.testing.assert_allclose(state.actuators.position[0], position, rtol=1e-6)


def test_readings_wait_their_dead_time(tank: QuadrupleTank) -> None:
    params = tank.default_params()
    quiet = params.instruments._replace(sd=0 * params.instruments.sd)
    steps, first = drive(tank, params._replace(instruments=quiet), [6.0, 6.0], 6)
    level = np.asarray(steps.info.level)
    np.testing.assert_allclose(steps.obs[:, 0], level[:, 0])
    np.testing.assert_allclose(steps.obs[1:, 1], level[:-1, 1])
    np.testing.assert_allclose(steps.obs[0, 1], first[1])


def test_one_declaration_gives_costs_margins_trips_and_bands(tank: QuadrupleTank) -> None:
    params = tank.default_params("clean")
    steps, _ = drive(tank, params, [10.0, 10.0], 40)
    level = np.max(steps.info.level, axis=1)
    np.testing.assert_allclose(steps.info.level_margin, 16 - level, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        steps.cost[:, 0], np.maximum(level - 16, 0) / 6, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_array_equal(steps.info.trip, level > 25)
    np.testing.assert_array_equal(steps.terminated, level > 25)
    np.testing.assert_array_equal(steps.truncated, (np.arange(1, 41) >= 20) & (level <= 25))
    assert level.max() > 25
    assert tank.bands() == {"h0": (-np.inf, 16.0)}


def test_instruments_drift_and_freeze_only_where_asked(tank: QuadrupleTank) -> None:
    faulty = QuadrupleTank(faults=True)
    params = faulty.default_params("clean")
    steps, _ = drive(faulty, params, [6.0, 6.0], 5)
    same, _ = drive(tank, tank.default_params("clean"), [6.0, 6.0], 5)
    np.testing.assert_array_equal(steps.obs, same.obs)
    some = params.instruments._replace(
        freezes=jnp.asarray([1.0, 0.0, 0.0, 0.0]),
        thaws=jnp.asarray(0.0),
        drift=jnp.asarray([0.0, 3.0, 0.0, 0.0]),
    )
    steps, _ = drive(faulty, params._replace(instruments=some), [6.0, 6.0], 5)
    np.testing.assert_allclose(steps.obs[:, 0], np.full(5, 12.4), rtol=1e-6)
    np.testing.assert_array_equal(steps.obs[:, 2:], same.obs[:, 2:])
    assert np.ptp(steps.obs[:, 1] - same.obs[:, 1]) > 0.01


def test_misspelt_declarations_are_refused_with_what_exists() -> None:
    class Priced(QuadrupleTank):
        penalties: ClassVar[dict[str, float]] = {"high_levl": 1.0}

    class Limited(QuadrupleTank):
        limits = (Limit("levels", high=16.0, cost="high_level"),)

    with pytest.raises(InputError, match="'high_levl'; did you mean 'high_level'"):
        Priced()
    limited = Limited()
    params = limited.default_params()
    state, _ = limited.reset(params, jax.random.key(0))
    with pytest.raises(InputError, match="unknown quantity of a limit 'levels'; did you mean 'l"):
        limited.step(params, state, jnp.zeros(2), jax.random.key(0))


SLIPS: dict[str, dict[str, Any]] = {
    "Broken lacks dt, measure; declare them in the class": {"dt": None, "measure": None},
    r"'gravity' must be constant\(value, unit, source\), got 981.0": {
        "constants": Constants()._replace(gravity=981.0)  # type: ignore[arg-type]
    },
    "initial_spread must have the form of initial": {"initial_spread": (1.0, 1.0)},
    "start of actuator 'u' must be from 0 to 10 V, got 11": {
        "actuators": (Actuator(Channel("u", "V", 0.0, 10.0), start=11.0),)
    },
    r"measure must return one number per instrument, an array of shape \(4,\), got \(\)": {
        "measure": lambda self, c, now: now.plant[0]
    },
    "of shape .4,., got a tuple": {"measure": lambda self, c, now: now.plant},
    r"reward must return one number, an array of shape \(\), got \(4,\)": {
        "reward": lambda self, c, before, now, trip: jnp.stack(now.plant)
    },
    r"one amount for each declared term, \['time'\], got \['thyme'\]": {
        "terms": (Term("time", "min", 1.0),),
        "amounts": lambda self, c, before, now, trip: {"thyme": 1.0},
    },
    "rates must have the form of the state, .*got PyTreeDef": {
        "evolve": lambda self, c, plant, *_: runge_kutta(jnp.stack, plant, width=1.0, substeps=1)
    },
}


@pytest.mark.parametrize("message", SLIPS)
def test_a_slip_in_a_plant_is_named_before_a_step_is_computed(message: str) -> None:
    members = {name: member for name, member in SLIPS[message].items() if member is not None}
    lacks = SLIPS[message].keys() - members.keys()
    given = {k: v for k, v in vars(QuadrupleTank).items() if k[0] != "_" and k not in lacks}

    def steps() -> Any:
        tank = type("Broken", (SimulatedPlant,), {**given, **members})()
        params = tank.default_params()
        state, _ = tank.reset(params, jax.random.key(0))
        return tank.step(params, state, jnp.zeros(2), jax.random.key(0))

    with pytest.raises((TypeError, ValueError), match=message):
        jax.eval_shape(steps)


def test_limits_that_limit_nothing_and_costs_without_a_limit_are_refused() -> None:
    wrong = {
        r"limit of 'level': low must be below high, got 16 and 5": (
            Limit("level", low=16.0, high=5.0, cost="high_level"),
        ),
        "limit of 'level' has no end; give low, high or both": (Limit("level", cost="high_level"),),
        "no limit adds to the cost 'high_level', which would always be 0": (
            Limit("level", high=25.0, trip=True),
        ),
        "adds to the cost 'high_levl'": (Limit("level", high=16.0, cost="high_levl"),),
    }
    for message, limits in wrong.items():
        plant = type("Limited", (QuadrupleTank,), {"limits": limits})
        with pytest.raises(ValueError, match=message):
            plant()


def test_constants_outside_physics_are_refused_by_name_and_unit(tank: QuadrupleTank) -> None:
    params = tank.sample_params(jax.random.key(0), spread=0.3)
    tank.check_params(params)
    wrong = params.constants._replace(areas=jnp.asarray([28.0, -1.0, 28.0, 32.0]))
    with pytest.raises(ValueError, match=r"'areas' must be finite and positive, got -1 cm2"):
        tank.check_params(params._replace(constants=wrong))
    devices = params.actuators, params.instruments
    slow = devices[0]._replace(lag=jnp.asarray([5.0, -1.0]))
    with pytest.raises(ValueError, match="lag of actuator 'v1' must be finite and not negative"):
        tank.check_params(params._replace(actuators=slow))
    late = devices[0]._replace(dead_time=jnp.asarray([3, 0]))
    with pytest.raises(ValueError, match="dead_time of actuator 'v0' must be from 0 to the decl"):
        tank.check_params(params._replace(actuators=late))
    broken = devices[1]._replace(sd=jnp.full(4, jnp.nan))
    with pytest.raises(ValueError, match="sd of instrument 'h0' must be finite and not negative"):
        tank.check_params(params._replace(instruments=broken))
    with pytest.raises(ValueError, match=r"spread must be in \[0, 1\), got 1.5"):
        tank.sample_params(jax.random.key(0), spread=1.5)
    drawn = params.constants
    assert np.all(np.asarray(drawn.pumps) != np.asarray([3.33, 3.35], np.float32))
    np.testing.assert_array_equal(drawn.areas, np.asarray([28, 32, 28, 32], np.float32))
    with pytest.raises(ValueError, match=r"horizon must be a positive integer .*, got 2\.5"):
        QuadrupleTank(horizon=2.5)  # type: ignore[arg-type]


class DerivedTank(QuadrupleTank):
    """The same, with the speed of outflow at 1 cm computed once an episode."""

    def derive(self, c: Any) -> Array:
        return jnp.sqrt(2 * c.gravity)

    def evolve(self, c: Any, plant: Any, inputs: Array, disturbance: Any, time: Array) -> Any:
        constants = c.constants._replace(gravity=c.derived**2 / 2)
        return super().evolve(constants, plant, inputs, disturbance, time)


def test_what_is_derived_follows_the_constants(tank: QuadrupleTank) -> None:
    env = DerivedTank()
    params = env.default_params("clean")
    steps, _ = drive(env, params, [6.0, 6.0], 5)
    same, _ = drive(tank, tank.default_params("clean"), [6.0, 6.0], 5)
    np.testing.assert_allclose(steps.obs, same.obs, rtol=1e-5)
    lighter = params.constants._replace(gravity=jnp.asarray(160.0))
    moved = env.with_constants(params, lighter)
    env.check_params(moved)
    np.testing.assert_allclose(moved.derived, np.sqrt(320), rtol=1e-6)
    with pytest.raises(ValueError, match=r"change constants by plant\.with_constants"):
        env.check_params(params._replace(constants=lighter))
