"""A scalar plant whose episodes have a closed form, and one evaluation of it."""

import math
from types import SimpleNamespace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Bool, Float

from neorl_core import Channel, CostChannel, Spec, Step
from neorl_core.control import PID
from neorl_envs import collect_log
from neorl_envs.recording import OperatorPlan
from neorl_safety.constraints import action_constraints
from neorl_train.evaluation._simulated import evaluate
from neorl_train.verdicts._rule import verdict

HIGH = 4.0
NOISE = 0.1


class Params(NamedTuple):
    pole: Float[Array, ""]


class Info(NamedTuple):
    success: Bool[Array, ""]


class Line(eqx.Module):
    """``x' = pole x + u + noise``, reward ``-x'``; trips above ``trip``; u inside [-4, 4]."""

    horizon: int = eqx.field(static=True, default=12)
    noise: float = eqx.field(static=True, default=0.0)
    trip: float = eqx.field(static=True, default=math.inf)
    peak_limit: float = eqx.field(static=True, default=2.0)
    sum_limit: float = eqx.field(static=True, default=30.0)
    costs: int = eqx.field(static=True, default=2)

    name: ClassVar[str] = "Line-v0"
    reference: ClassVar[str] = "steady"
    reward_unit: ClassVar[str] = "EUR"

    @property
    def spec(self) -> Spec:
        return Spec(
            obs=(Channel("level", "m", -10.0, 10.0),),
            action=(Channel("valve", "%", -HIGH, HIGH),),
            cost=(
                CostChannel("load", "m", self.sum_limit, "episode"),
                CostChannel("peak", "m", self.peak_limit, "step"),
            )[: self.costs],
            dt=60.0,
            horizon=self.horizon,
        )

    def bands(self):
        return {"level": (-math.inf, self.peak_limit)}

    def tunings(self):
        return {"steady": proportional(0.2), "hasty": proportional(0.6)}

    def operator_plan(self):
        one, whole = jnp.ones((1,)), jnp.asarray(1000, jnp.int32)
        never = jnp.asarray(1e9)
        return OperatorPlan(
            amplitude=0 * one,
            dwell=never,
            setpoint_step=0 * one,
            setpoint_high=one,
            setpoint_group=jnp.zeros((1,), jnp.int32),
            setpoint_every=never,
            hold_every=never,
            hold_shortest=whole,
            hold_longest=whole,
            watch_low=-jnp.inf * one,
            watch_high=jnp.inf * one,
        )

    def sample_params(self, key, *, spread=0.1):
        return Params(0.8 + spread * jax.random.uniform(key))

    def reset(self, params, key):
        level = 1.0 + jax.random.uniform(key)
        return (level, jnp.zeros((), jnp.int32)), level[None]

    def step(self, params, state, action, key):
        level, time = state
        applied = jnp.clip(action, -HIGH, HIGH)
        level = params.pole * level + applied[0] + self.noise * jax.random.normal(key)
        terminated = level > self.trip
        step = Step(
            obs=level[None],
            final_obs=level[None],
            reward=-level,
            cost=jnp.maximum(jnp.full((self.costs,), level), 0),
            applied=applied,
            terminated=terminated,
            truncated=(time + 1 >= self.horizon) & ~terminated,
            info=Info(success=~terminated & (time + 1 >= self.horizon)),
        )
        return (level, time + 1), step


def proportional(gain, *, bias=0.0):
    one = jnp.ones((1,))
    return PID(
        kp=gain * one,
        ki=0 * one,
        kd=0 * one,
        tau=one,
        setpoint=0 * one,
        bias=bias * one,
        low=-HIGH * one,
        high=HIGH * one,
        dt=jnp.asarray(60.0),
        override_below=jnp.zeros((0,)),
        override_cap=jnp.zeros((0,)),
        measured=(0,),
    )


@pytest.fixture(scope="session")
def toy():
    """The plant and what evaluates it, by name: no module may import another here."""

    def run(plant, policies, *, candidate, n_starts=16, key=None, fallback=None):
        dataset = collect_log(plant, n_steps=16 * plant.horizon, key=jax.random.key(5), spread=0.1)
        return evaluate(
            plant,
            policies,
            action_constraints(plant.spec),
            proportional(0.2) if fallback is None else fallback,
            key=jax.random.key(3) if key is None else key,
            dataset=dataset,
            candidate=candidate,
            n_starts=n_starts,
        )

    return SimpleNamespace(
        Line=Line, proportional=proportional, evaluate=run, HIGH=HIGH, NOISE=NOISE
    )


@pytest.fixture(scope="session")
def noisy(toy):
    """An evaluation with two seeds that are better than the reference and one that is worse."""
    policies = {
        "good-0": toy.proportional(0.5),
        "good-1": toy.proportional(0.7),
        "bad-0": toy.proportional(0.05),
    }
    found = toy.evaluate(toy.Line(noise=NOISE), policies, candidate="good-0", n_starts=100)
    return SimpleNamespace(evaluation=found, tables=found.tables, verdict=verdict(found.tables))
