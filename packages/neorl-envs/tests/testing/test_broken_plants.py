"""Ways to break a plant that looks right in every batch of rows: each is found by name."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from neorl_envs.plants import CSTR, Pipeline
from neorl_envs.testing import LAWS, check_environment, evidence


class OneKey(CSTR):
    def sample_noise(self, params: Any, key: Any) -> Any:
        noise = super().sample_noise(params, key)
        return noise._replace(process=self.sample_process_noise(params.constants, key))


class NoSpeedLimit(CSTR):
    def step_with_noise(self, params: Any, state: Any, action: Any, noise: Any) -> Any:
        free = params._replace(actuators=params.actuators._replace(speed=jnp.full(1, jnp.inf)))
        return super().step_with_noise(free, state, action, noise)


def answering(**change: Any) -> Any:
    def step_with_noise(self: Any, params: Any, state: Any, action: Any, noise: Any) -> Any:
        after, step = CSTR.step_with_noise(self, params, state, action, noise)
        return after, step._replace(**{name: f(self, step) for name, f in change.items()})

    return type("Broken", (CSTR,), {"step_with_noise": step_with_noise})


class LateClock(CSTR):
    def step_with_noise(self, params: Any, state: Any, action: Any, noise: Any) -> Any:
        after, step = super().step_with_noise(params, state, action, noise)
        late = (after.time > self.horizon) & ~step.terminated
        return after, step._replace(truncated=late)


class DoublePeriod(CSTR):
    dt = 30.0


class HalfThePhysics(CSTR):
    def evolve(self, c: Any, plant: Any, *rest: Any) -> Any:
        end = super().evolve(c, plant, *rest)
        return jax.tree.map(lambda a, b: (a + b) / 2, plant, end)


class OneNoise(CSTR):
    def sample_noise(self, params: Any, key: Any) -> Any:
        return super().sample_noise(params, jax.random.key(0))


class SharedDraws(CSTR):
    def sample_noise(self, params: Any, key: Any) -> Any:
        noise = super().sample_noise(params, key)
        shared = jnp.concatenate([noise.process[0], noise.process[0][:1]])
        return noise._replace(instruments=noise.instruments._replace(normal=shared))


class DeafReset(CSTR):
    def reset(self, params: Any, key: Any) -> Any:
        return super().reset(params, jax.random.key(0))


class NoRandomisation(CSTR):
    def sample_params(self, key: Any, *, preset: str = "plant", spread: float = 0.15) -> Any:
        return self.default_params(preset)


class NoisyClean(CSTR):
    def default_params(self, preset: str = "plant", **more: Any) -> Any:
        super().default_params(preset, **more)  # refuses an unknown one
        return super().default_params("plant", **more)


class RawDemand(CSTR):
    def step_with_noise(self, params: Any, state: Any, action: Any, noise: Any) -> Any:
        low, high = 285.0, 310.0
        position = state.actuators.position
        raw = jnp.clip(jnp.nan_to_num(action, nan=300.0), low, high)
        pushed = state._replace(actuators=state.actuators._replace(position=(position + raw) / 2))
        return super().step_with_noise(params, pushed, action, noise)


class FreeTrip(CSTR):
    def reward(self, c: Any, before: Any, now: Any, trip: Any) -> Any:
        return super().reward(c, before, now, jnp.zeros_like(trip))


class WrongTerms(CSTR):
    def amounts(self, c: Any, before: Any, now: Any, trip: Any) -> Any:
        found = super().amounts(c, before, now, trip)
        return {**found, "distance from the setpoint": found["distance from the setpoint"] / 2}


BROKEN: dict[str, tuple[Any, str, str]] = {
    "one key for two draws": (OneKey, "a_key_is_used_once", "key twice"),
    "no speed limit": (NoSpeedLimit, "applied_is_inside_range_and_rate", "its speed allows"),
    "final_obs zero": (
        answering(final_obs=lambda self, step: jnp.zeros_like(step.obs)),
        "the_last_observation_is_that_of_the_step",
        "final_obs differs from obs",
    ),
    "truncated a step late": (LateClock, "the_clock_truncates", "truncated in the steps"),
    "dt twice the period": (DoublePeriod, "a_period_takes_dt", "0.5"),
    "half the physics": (HalfThePhysics, "a_period_takes_dt", "0.5"),
    "reward of the reading": (
        answering(reward=lambda self, step: -100 * jnp.abs(step.obs[0] - step.obs[2])),
        "instruments_only_show",
        "reward changes with the noise",
    ),
    "cost of the reading": (
        answering(cost=lambda self, step: jnp.maximum(step.obs[1:2] - 320.0, 0.0)),
        "instruments_only_show",
        "cost changes with the noise",
    ),
    "noise of a constant key": (OneNoise, "another_key_gives_other_draws", "same noise"),
    "instruments share the draws": (SharedDraws, "draws_do_not_go_together", "are correlated"),
    "reset deaf to its key": (DeafReset, "another_key_gives_other_draws", "reset starts"),
    "no randomisation": (NoRandomisation, "another_key_gives_other_draws", "'rate_constant'"),
    "clean is noisy": (NoisyClean, "clean_has_no_chance", "'clean'"),
    "raw demand moves the plant": (RawDemand, "the_plant_receives_what_is_logged", "a log holds"),
    "a trip is free": (FreeTrip, "a_trip_has_its_price", "takes nothing off"),
    "terms are half the reward": (WrongTerms, "terms_add_up_to_the_reward", "the terms of step"),
    "cost always zero": (
        answering(cost=lambda self, step: jnp.zeros_like(step.cost)),
        "costs_are_declared_and_not_negative",
        "zero in every step",
    ),
}


# Their laws find a smaller plant that is broken so by day, in test_laws.py.
BY_NIGHT = {
    *("one key for two draws", "no speed limit", "final_obs zero", "truncated a step late"),
    "raw demand moves the plant",
}


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=[pytest.mark.nightly] * (f in BY_NIGHT)) for f in BROKEN]
)
def test_a_law_finds_the_broken_plant(fault: str) -> None:
    plant, law, message = BROKEN[fault]
    assert message in str(LAWS[law](evidence(plant(horizon=60), 0)))


@pytest.mark.nightly
@pytest.mark.parametrize("fault", BROKEN)
def test_the_whole_check_names_the_law(fault: str) -> None:
    plant, law, message = BROKEN[fault]
    result = {finding.law: finding.fault for finding in check_environment(plant(), eager=False)}
    assert message in result[law]


class NotANumber(CSTR):
    def evolve(self, c: Any, plant: Any, *rest: Any) -> Any:
        return jax.tree.map(lambda x: jnp.nan * x, super().evolve(c, plant, *rest))


def test_a_law_that_bad_numbers_stop_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy refuses to integrate from NaN, which must not end the check of the other laws."""
    for law in set(LAWS) - {"a_period_takes_dt", "finite_under_hostile_actions"}:
        monkeypatch.delitem(LAWS, law)
    plant, *laws = check_environment(NotANumber(horizon=20), eager=False)
    faults = {finding.law: finding.fault for finding in laws}
    assert plant.fault == ""
    assert "cannot be judged: ValueError" in faults["a_period_takes_dt"]
    assert "obs is not finite in step 0" in faults["finite_under_hostile_actions"]


def test_a_plant_without_a_derivative_is_told_that_its_period_is_not_checked() -> None:
    answer: Any = LAWS["a_period_takes_dt"](evidence(Pipeline(horizon=30), 0))
    assert "define SimulatedPlant.derivative" in answer.reason
