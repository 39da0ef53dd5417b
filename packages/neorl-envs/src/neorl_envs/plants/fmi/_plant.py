"""A co-simulation unit as a plant: pure functions of parameters, state, action and key.

The state of a unit is hidden, so the state of the plant is how it got there: the start values and
the inputs of every step. :mod:`neorl_envs.plants.fmi._units` keeps instances of the unit at such
points, so that an episode is simulated once, and compiled programs call it from the host.
"""

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from neorl_core import Channel, CostChannel, InputError, Policy, Spec, Step, highs, lows
from neorl_core.control import ConstantPolicy, standard_pid
from neorl_core.projections import project_box
from neorl_envs.plant_logs._configuration import BEFORE
from neorl_envs.plant_logs._interlocks import Formula, evaluate
from neorl_envs.plants._protocol import PlantDefaults
from neorl_envs.plants.fmi._declaration import (
    UnitDeclaration,
    compiled_expression,
    declaration_file,
    read_declaration,
)
from neorl_envs.plants.fmi._units import POINT, Units, read_description


class UnitParameters(NamedTuple):
    """Ranges of the start values, and errors of the instruments.

    Attributes:
        low: Lowest start value of every declared parameter, shape ``(start,)``.
        high: Highest start value, shape ``(start,)``.
        noise: Standard deviation of every reading, shape ``(obs,)``.
    """

    low: Float[Array, " start"]
    high: Float[Array, " start"]
    noise: Float[Array, " obs"]


class UnitState(NamedTuple):
    """How a unit got to where it stands.

    Attributes:
        point: Name of its state, shape ``(4,)``; zero after the unit failed.
        time: Steps since the reset.
        start: Start values of the declared parameters, shape ``(start,)``.
        history: Inputs of the steps so far, shape ``(time, act)``; zero in later rows.
        command: Last inputs, shape ``(act,)``.
        outputs: Last values that were read, without error, shape ``(output,)``.
    """

    point: UInt32[Array, "4"]
    time: Int[Array, ""]
    start: Float[Array, " start"]
    history: Float[Array, "time act"]
    command: Float[Array, " act"]
    outputs: Float[Array, " output"]


class UnitInformation(NamedTuple):
    """``Step.info``: whether the unit tripped or failed."""

    trip: Bool[Array, ""]


class Formulas(NamedTuple):
    """The declared expressions, compiled."""

    reward: Formula
    costs: tuple[Formula, ...]
    trip: Formula | None


class UnitPlant(eqx.Module, PlantDefaults):
    """A plant that is a co-simulation unit; :func:`unit_plant` makes it.

    A step sets the inputs, lets the unit run for one period, and reads its outputs. Reward, costs
    and trips follow from the values that the unit computes; instruments add their errors to what a
    controller sees. If the unit refuses a step, the episode ends as after a trip.

    Attributes:
        path: Absolute path of the unit.
        name: Its file name.
        digest: Digest of the unit and of its declaration.
        declared: Its declaration.
    """

    path: str = eqx.field(static=True)
    name: str = eqx.field(static=True)
    digest: str = eqx.field(static=True)
    declared: UnitDeclaration = eqx.field(static=True)

    reward_unit_default: ClassVar[str] = "points"

    @property
    def reward_unit(self) -> str:  # type: ignore[override]
        """Unit of the reward."""
        return self.declared.reward.unit or self.reward_unit_default

    @property
    def reference(self) -> str:  # type: ignore[override]
        """The declared loops, or constant inputs if there is none."""
        return "PID" if self.declared.loops else "constant"

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon."""
        return _spec(self.declared)

    def action_rates(self) -> tuple[float, ...]:
        """Largest change of each input per second, as declared."""
        return tuple(tag.rate for tag in self.declared.of_role("manipulated"))

    def penalty_weights(self) -> dict[str, float]:
        """The declared penalty of every cost."""
        return {cost.name: cost.penalty for cost in self.declared.costs}

    def default_params(self, preset: str = "plant") -> UnitParameters:
        """The declared ranges and errors; ``"clean"`` has neither.

        Raises:
            ValueError: If the preset is unknown.
        """
        if preset not in ("plant", "clean"):
            raise ValueError(f"the presets of a unit are 'plant' and 'clean', got {preset!r}")
        declared = self.declared
        low, high = (
            jnp.asarray([getattr(one, end) for one in declared.parameters], jnp.float32)
            for end in ("low", "high")
        )
        noise = jnp.asarray([tag.noise for tag in declared.of_role("observation")], jnp.float32)
        if preset == "clean":
            middle = (low + high) / 2
            return UnitParameters(middle, middle, 0 * noise)
        return UnitParameters(low, high, noise)

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> UnitParameters:
        """The parameters; :meth:`reset` draws from their ranges, so ``spread`` has no effect."""
        return self.default_params(preset)

    def tunings(self) -> dict[str, Policy]:
        """The declared loops as one bank of PID loops, and constant inputs."""
        tags = self.declared.of_role("manipulated")
        start = jnp.asarray([tag.start for tag in tags], jnp.float32)
        held: dict[str, Policy] = {"constant": ConstantPolicy(start)}
        return {"PID": _bank(self.declared), **held} if self.declared.loops else held

    def reset(
        self, params: UnitParameters, key: PRNGKeyArray
    ) -> tuple[UnitState, Float[Array, " obs"]]:
        """Starts the unit with drawn start values, and returns its readings."""
        for_start, for_noise = jax.random.split(key)
        part = jax.random.uniform(for_start, params.low.shape)
        start = params.low + part * (params.high - params.low)
        units, spec = _units(self), self.spec
        shapes = _answer(units)
        point, outputs = jax.pure_callback(
            lambda values: _single(units.begin(values)), shapes, start, vmap_method="broadcast_all"
        )
        command = jnp.asarray(
            [tag.start for tag in self.declared.of_role("manipulated")], jnp.float32
        )
        history = jnp.zeros((spec.horizon, spec.n_action))
        time = jnp.zeros((), jnp.int32)
        state = UnitState(point, time, start, history, command, outputs)
        return state, self._shown(params, outputs, for_noise)

    def step(
        self,
        params: UnitParameters,
        state: UnitState,
        action: Float[Array, " act"],
        key: PRNGKeyArray,
    ) -> tuple[UnitState, Step]:
        """Runs the unit for one period.

        Raises:
            ValueError: If the action has a wrong shape.
        """
        spec = self.spec
        if jnp.shape(action) != (spec.n_action,):
            raise ValueError(f"an action has shape {(spec.n_action,)}, got {jnp.shape(action)}")
        command = self._limited(state.command, action)
        units = _units(self)
        point, outputs = jax.pure_callback(
            lambda *values: _single(units.step(*values)),
            _answer(units),
            *(state.point, state.time, state.start, state.history, command),
            vmap_method="broadcast_all",
        )
        failed = ~jnp.all(jnp.isfinite(outputs))
        outputs = jnp.where(failed, state.outputs, outputs)
        # Past the horizon, which only a caller that ignores the end reaches, rows are overwritten.
        history = jax.lax.dynamic_update_index_in_dim(state.history, command, state.time, 0)
        after = UnitState(point, state.time + 1, state.start, history, command, outputs)
        formulas = _formulas(self)
        columns = self._columns(outputs, state.outputs, command, state.command)
        trip = failed
        if formulas.trip is not None:
            trip = trip | (evaluate(formulas.trip, columns) > 0)
        reward = jnp.asarray(evaluate(formulas.reward, columns), jnp.float32).reshape(())
        costs = [jnp.maximum(evaluate(one, columns), 0).reshape(()) for one in formulas.costs]
        obs = self._shown(params, outputs, key)
        return after, Step(
            obs=obs,
            final_obs=obs,
            reward=reward + jnp.where(trip, self.declared.episodes.trip_reward, 0.0),
            cost=jnp.stack(costs) if costs else jnp.zeros(0),
            applied=command,
            terminated=trip,
            truncated=(after.time >= spec.horizon) & ~trip,
            info=UnitInformation(trip),
        )

    def objective(
        self,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
        last_action: Float[Array, " act"],
    ) -> Float[Array, " outcome"]:
        """Reward and costs from measurements; NaN where an auxiliary variable enters."""
        unknown = jnp.full(len(self.declared.of_role("auxiliary")), jnp.nan)
        columns = self._columns(
            jnp.concatenate([next_obs, unknown]),
            jnp.concatenate([obs, unknown]),
            action,
            last_action,
        )
        formulas = _formulas(self)
        reward = jnp.asarray(evaluate(formulas.reward, columns), jnp.float32).reshape(())
        costs = [jnp.maximum(evaluate(one, columns), 0).reshape(()) for one in formulas.costs]
        return jnp.stack([reward, *costs])

    def _limited(self, last: Array, action: Array) -> Float[Array, " act"]:
        """The inputs within range and rate; NaN leaves an input as it is."""
        low, high = (jnp.asarray(ends(self.spec.action), last.dtype) for ends in (lows, highs))
        demand = jnp.where(jnp.isnan(action), last, jnp.asarray(action, last.dtype))
        furthest = jnp.asarray(self.action_rates(), last.dtype) * self.spec.dt
        near = jnp.clip(project_box(demand, low, high), last - furthest, last + furthest)
        return jnp.clip(near, low, high)

    def _shown(self, params: UnitParameters, outputs: Array, key: PRNGKeyArray) -> Array:
        """What the instruments show: the outputs with errors, within the measuring ranges."""
        spec = self.spec
        true = outputs[: spec.n_obs]
        low, high = (jnp.asarray(ends(spec.obs), true.dtype) for ends in (lows, highs))
        noise = params.noise * jax.random.normal(key, params.noise.shape)
        return jnp.clip(true + noise, low, high)

    def _columns(
        self, outputs: Array, before: Array, command: Array, last: Array
    ) -> Mapping[str, Array]:
        """Every name that an expression may use."""
        declared = self.declared
        read = [tag.name for tag in _read(declared)]
        moved = [tag.name for tag in declared.of_role("manipulated")]
        return {
            **{name: outputs[i] for i, name in enumerate(read)},
            **{BEFORE + name: before[i] for i, name in enumerate(read)},
            **{name: command[i] for i, name in enumerate(moved)},
            **{BEFORE + name: last[i] for i, name in enumerate(moved)},
        }


def unit_plant(path: str) -> UnitPlant:
    """Makes a plant of a co-simulation unit of FMI 2.0 or 3.0 and the TOML file beside it.

    Args:
        path: The unit, such as ``"tank.fmu"``; its declaration is ``tank.toml`` beside it.

    Raises:
        InputError: If a file is missing or not valid; the message says what to do.
    """
    file = Path(path).absolute()
    if not file.is_file():
        raise InputError(f"{path}: there is no such unit; give the path of a file *.fmu")
    declared = read_declaration(str(file), read_description(str(file)))
    content = file.read_bytes() + declaration_file(str(file)).read_bytes()
    plant = UnitPlant(str(file), file.name, hashlib.sha256(content).hexdigest(), declared)
    _formulas(plant)
    return plant


def _read(declared: UnitDeclaration) -> tuple[Any, ...]:
    """The tags that are read after a step: the observations first."""
    return declared.of_role("observation") + declared.of_role("auxiliary")


@functools.cache
def _spec(declared: UnitDeclaration) -> Spec:
    obs, action = (
        tuple(Channel(tag.name, tag.unit, tag.low, tag.high) for tag in declared.of_role(role))
        for role in ("observation", "manipulated")
    )
    costs = tuple(CostChannel(one.name, one.unit, one.limit, one.per) for one in declared.costs)
    return Spec(obs, action, costs, declared.sampling.period_s, declared.episodes.length)


@functools.cache
def _formulas(plant: UnitPlant) -> Formulas:
    declared, source = plant.declared, str(declaration_file(plant.path))
    compiled = functools.partial(compiled_expression, declared=declared)
    trip = declared.episodes.trip
    return Formulas(
        compiled(declared.reward.expression, source=f"{source}: reward.expression"),
        tuple(compiled(one.expression, source=f"{source}: {one.name}") for one in declared.costs),
        compiled(trip, source=f"{source}: episodes.trip") if trip else None,
    )


@functools.cache
def _units(plant: UnitPlant) -> Units:
    """The instances of a plant in this process."""
    declared = plant.declared
    return Units(
        plant.path,
        inputs=[tag.variable for tag in declared.of_role("manipulated")],
        outputs=[tag.variable for tag in _read(declared)],
        starts=[one.name for one in declared.parameters],
        period=declared.sampling.period_s,
        horizon=declared.episodes.length,
    )


def _answer(units: Units) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    return (
        jax.ShapeDtypeStruct((POINT,), jnp.uint32),
        jax.ShapeDtypeStruct((units.n_outputs,), jnp.float32),
    )


def _single(answer: Any) -> Any:
    """The answer of the units in single precision, as compiled programs expect it."""
    point, outputs = answer
    return point, outputs.astype("float32")


def _bank(declared: UnitDeclaration) -> Policy:
    """One loop for every input; one that no declared loop moves is held at its start."""
    observed = {tag.name: (i, tag) for i, tag in enumerate(declared.of_role("observation"))}
    loops = {loop.manipulated: loop for loop in declared.loops}
    rows = []
    for tag in declared.of_role("manipulated"):
        row = {"gain": 0.0, "setpoint": 0.0, "bias": tag.start, "low": tag.low, "high": tag.high}
        loop = loops.get(tag.name)
        if loop is not None:
            index, measured = observed[loop.controlled]
            standard = loop.standard(measured.high - measured.low, tag.high - tag.low)
            sign = 1.0 if loop.direction == "reverse" else -1.0
            row |= {key: standard[key] for key in standard if key != "derivative_filter"}
            row |= {"gain": sign * standard["gain"], "measured": index}
            given = {key: getattr(loop, key) for key in ("setpoint", "bias", "low", "high")}
            row |= {key: value for key, value in given.items() if value is not None}
        rows.append(row)
    defaults = {"integral_time": float("inf"), "derivative_time": 0.0, "measured": 0}
    columns = {
        key: [{**defaults, **row}[key] for row in rows]
        for key in (*defaults, "gain", "setpoint", "bias", "low", "high")
    }
    return standard_pid(
        **columns,
        dt=declared.sampling.period_s,
        derivative_filter=declared.loops[0].derivative_filter,
    )
