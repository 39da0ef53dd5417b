"""Each law notices a plant that breaks it."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from neorl_core import Channel, CostChannel, Spec, Step
from neorl_envs.plants import PlantDefaults
from neorl_envs.testing import LAWS, Finding, check_environment, evidence


class Info(NamedTuple):
    trip: Any


class Level(eqx.Module, PlantDefaults):
    """One level and one valve with a largest speed; keeps every law."""

    horizon: int = eqx.field(static=True, default=6)

    name = "Level-v0"
    reward_unit = "m"
    reference = "none"

    @property
    def spec(self) -> Spec:
        valve = Channel("valve", "%", 0.0, 100.0)
        cost = CostChannel("overflow", "m", 0.5, "episode")
        return Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (cost,), 10.0, self.horizon)

    def tunings(self) -> dict[str, Any]:
        return {"none": None}

    def action_rates(self) -> tuple[float, ...]:
        return (4.0,)

    def default_params(self, preset: str = "plant") -> Any:
        if preset != "plant":
            raise ValueError(preset)
        return jnp.asarray(0.02)

    def sample_params(self, key: Any, *, preset: str = "plant", spread: float = 0.15) -> Any:
        return self.default_params(preset)

    def reset(self, params: Any, key: Any) -> Any:
        level = jax.random.uniform(key, (1,), None, 0.5, 1.5)
        return (level, jnp.full(1, 50.0), jnp.zeros((), jnp.int32)), level

    def step(self, params: Any, state: Any, action: Any, key: Any) -> Any:
        level, last, time = state
        if jnp.shape(action) != (1,):
            raise ValueError("an action has shape (1,)")
        action = jnp.clip(jnp.where(jnp.isnan(action), last, action), 0, 100)
        action = jnp.clip(action, last - 40, last + 40)
        level = jnp.clip(level + params * (action - 50), 0, 2)
        trip = level[0] >= 2
        step = Step(
            obs=level,
            final_obs=level,
            reward=-level[0] - jnp.where(trip, 20.0, 0.0),
            cost=jnp.maximum(level - 1.5, 0),
            applied=action,
            terminated=trip,
            truncated=(time + 1 >= self.horizon) & ~trip,
            info=Info(trip),
        )
        return (level, action, time + 1), step


def answer(change: Callable[[Step, Any, Any], Step]) -> dict[str, Any]:
    """A step that answers something else, from the right answer, the state and the action."""

    def step(self: Any, params: Any, state: Any, action: Any, key: Any) -> Any:
        state, right = Level.step(self, params, state, action, key)
        return state, change(right, state, action)

    return {"step": step}


def forgetful(self: Any, params: Any, state: Any, action: Any, key: Any) -> Any:
    return Level.step(self, params, state, jnp.nan_to_num(action, nan=90.0), key)


def tolerant(self: Any, params: Any, state: Any, action: Any, key: Any) -> Any:
    return Level.step(self, params, state, jnp.ravel(action)[:1], key)


def thirsty(self: Any, params: Any, state: Any, action: Any, key: Any) -> Any:
    """The level moves with the demand, the log has the limited one."""
    (level, last, time), step = Level.step(self, params, state, action, key)
    demand = jnp.clip(jnp.nan_to_num(action, nan=50.0), -1e3, 1e3)
    return (jnp.clip(level + 0.01 * params * demand, 0, 2), last, time), step


def widening(self: Any, params: Any, state: Any, action: Any, key: Any) -> Any:
    (level, last, time), step = Level.step(self, params, state, action, key)
    return (level, last, time.astype(jnp.float32)), step


def deaf_reset(self: Any, params: Any, key: Any) -> Any:
    return Level.reset(self, params, jax.random.key(0))


def twice(self: Any, params: Any, key: Any) -> Any:
    (level, last, time), _ = Level.reset(self, params, key)
    level = level + 0.1 * jax.random.normal(key, (1,))
    return (level, last, time), level


def any_preset(self: Any, preset: str = "plant") -> Any:
    return jnp.asarray(0.02)


def refusing(self: Any, params: Any) -> None:
    raise ValueError("constant 'inflow' must be finite and positive, got -1 m3/s")


CALLS: list[int] = []


def remembering(self: Any, params: Any, state: Any, action: Any, key: Any) -> Any:
    CALLS.append(1)
    state, step = Level.step(self, params, state, action, key)
    return state, step._replace(reward=step.reward + jnp.asarray(1.0 * len(CALLS)))


BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "it_is_a_plant": ("bands names 'pressure'", {"bands": lambda self: {"pressure": (0, 1)}}),
    "it_can_be_run": ("TypeError", {"reset": lambda self, params: None}),
    "a_wrong_shape_is_refused": (r"shape \(2,\) is accepted", {"step": tolerant}),
    "an_unknown_preset_is_refused": ("raise ValueError", {"default_params": any_preset}),
    "its_own_parameters_are_physical": ("positive, got -1 m3/s", {"check_params": refusing}),
    "the_state_keeps_its_form": (r"is int32\(\) after reset and float32", {"step": widening}),
    "a_key_is_used_once": ("reset uses a key twice", {"reset": twice}),
    "compiled_equals_eager": ("reward of the first step", {"step": remembering}),
    "reward_and_endings_are_scalars": (
        r"reward of a step is float32\(1,\), expected one real number, shape \(\)",
        answer(lambda s, state, action: s._replace(reward=s.obs)),
    ),
    "finite_under_hostile_actions": (
        "reward is not finite in step 0 of the actions 'infinite'",
        answer(
            lambda s, state, action: s._replace(
                reward=s.reward + 0 * jnp.sum(jnp.where(jnp.isinf(action), action, 0))
            )
        ),
    ),
    "observations_respect_the_spec": (
        "level is .* outside its range 0 to 2",
        answer(lambda s, state, action: s._replace(obs=s.obs + 1)),
    ),
    "applied_is_inside_range_and_rate": (
        "its speed allows 40",
        answer(
            lambda s, state, action: s._replace(
                applied=jnp.clip(jnp.nan_to_num(action, nan=50.0), 0, 100)
            )
        ),
    ),
    "the_plant_receives_what_is_logged": ("which is what a log holds", {"step": thirsty}),
    "the_last_observation_is_that_of_the_step": (
        "final_obs differs from obs in step 0",
        answer(lambda s, state, action: s._replace(final_obs=s.obs / 2)),
    ),
    "ending_early_does_not_pay": (
        "tripping under the actions .* doing nothing in the same world",
        answer(lambda s, state, action: s._replace(reward=-s.obs[0])),
    ),
    "endings_exclude_each_other": (
        "is terminated and truncated",
        answer(lambda s, state, action: s._replace(truncated=s.truncated | s.terminated)),
    ),
    "an_end_has_its_reason": (
        r"step \d is not terminated with trip True under the actions",
        answer(lambda s, state, action: s._replace(terminated=jnp.zeros((), bool))),
    ),
    "the_clock_truncates": (
        r"horizon 6 was truncated in the steps \[\]",
        answer(lambda s, state, action: s._replace(truncated=jnp.zeros((), bool))),
    ),
    "costs_are_declared_and_not_negative": (
        "the cost 'overflow' is negative",
        answer(lambda s, state, action: s._replace(cost=s.cost - 1)),
    ),
    "a_nan_action_keeps_the_last_command": ("NaN moved the actuators", {"step": forgetful}),
    "equal_keys_give_equal_episodes": ("another key gives the same", {"reset": deaf_reset}),
}


def test_a_plant_that_keeps_the_laws_has_no_fault_and_findings_are_reported() -> None:
    reported: list[Finding] = []
    findings = check_environment(Level(), report=reported.append)
    assert [finding for finding in findings if finding.fault] == []
    assert tuple(reported) == findings


@pytest.mark.parametrize("law", BROKEN)
def test_a_law_notices_who_breaks_it(law: str) -> None:
    message, members = BROKEN[law]
    plant = type("Broken", (Level,), members)()
    if law in LAWS:
        fault = str(LAWS[law](evidence(plant, 0)))
    else:
        (finding,) = check_environment(plant)
        assert finding.law == law
        fault = finding.fault
    assert re.search(message, fault)


def test_every_law_has_a_plant_that_breaks_it() -> None:
    """Aside from two that only a change of JAX could break, and those of ``test_broken_plants``."""
    left = {"a_second_call_does_not_trace_again", "a_batch_equals_single_steps"}
    left.add("terms_add_up_to_the_reward")
    left |= {name for name, law in LAWS.items() if law.__module__.endswith("_simulated_laws")}
    assert {*LAWS, "it_is_a_plant", "the_state_keeps_its_form", "it_can_be_run"} - left == {*BROKEN}
