"""What fills a log, as policies: every tuning of the plant together with its operators."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core.control import PID, PIDCarry
from neorl_envs.recording._operators import (
    OperatorPlan,
    OperatorState,
    in_manual,
    init_operators,
    moved_setpoint,
    operator_step,
)
from neorl_envs.recording._recordable import Recordable


class BehaviourCarry(NamedTuple):
    """What controller and operators remember.

    Attributes:
        control: Carry of the controller.
        operators: State of the operators.
        started: Whether the operators have begun; their first signs are drawn in the first step.
        position: The action that the plant received last, shape ``(act,)``; NaN before the
            first step.
        signal: Test signal added in the last step, shape ``(act,)``.
    """

    control: PIDCarry
    operators: OperatorState
    started: Bool[Array, ""]
    position: Float[Array, " act"]
    signal: Float[Array, " act"]


class BehaviourPolicy(eqx.Module):
    """One tuning with set-point steps, manual holds and test signals: random, so it needs keys.

    Acts as :func:`neorl_envs.collect_log` does, so the logged behaviour can be met again on
    chosen starts and compared with another policy there, start by start.

    Attributes:
        tuning: The controller.
        plan: What the operators do.
    """

    tuning: PID
    plan: OperatorPlan

    def initial_carry(self) -> BehaviourCarry:
        """All loops in automatic; the operators begin with the first step."""
        amplitude = self.plan.amplitude
        nothing = jnp.zeros((), jnp.int32)
        offset = jnp.zeros_like(self.plan.setpoint_step)
        return BehaviourCarry(
            control=self.tuning.initial_carry(),
            operators=OperatorState(jnp.ones_like(amplitude), offset, nothing, nothing),
            started=jnp.zeros((), jnp.bool_),
            position=jnp.full_like(amplitude, jnp.nan),
            signal=jnp.zeros_like(amplitude),
        )

    def __call__(
        self, carry: BehaviourCarry, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> tuple[BehaviourCarry, Float[Array, " act"]]:
        """One step of operators and controller.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Decides what the operators do.

        Returns:
            The new carry and the action. A channel in manual keeps its last position; it is NaN
            where that is not known, which leaves the actuator where it is.
        """
        for_start, for_operators = jax.random.split(key)
        fresh = init_operators(self.plan, for_start)
        operators = jax.tree.map(
            lambda old, new: jnp.where(carry.started, old, new), carry.operators, fresh
        )
        operators, manual, signal = operator_step(self.plan, operators, obs, for_operators)
        setpoint = moved_setpoint(self.plan, operators, self.tuning.setpoint)
        controller = dataclasses.replace(self.tuning, setpoint=setpoint)
        control, proposed = controller(carry.control, obs, None)
        action = jnp.where(manual, carry.position, proposed + signal)
        started = jnp.ones((), jnp.bool_)
        return BehaviourCarry(control, operators, started, carry.position, signal), action

    def sent(self, carry: BehaviourCarry, action: Float[Array, " act"]) -> BehaviourCarry:
        """What the plant received, less the test signal; the loops in manual follow it."""
        manual, received = in_manual(self.plan, carry.operators), action - carry.signal
        control = self.tuning.sent(carry.control, jnp.where(manual, jnp.nan, received))
        control = self.tuning.follow(control, jnp.where(manual, received, jnp.nan))
        return carry._replace(control=control, position=action)


def behaviour_policies(
    env: Recordable, tunings: Mapping[str, PID] | None = None, plan: OperatorPlan | None = None
) -> dict[str, BehaviourPolicy]:
    """The policies that take turns, episode by episode, in :func:`neorl_envs.collect_log`.

    Args:
        env: An environment of this package.
        tunings: The controllers by name; the environment's own by default.
        plan: What the operators do; the environment's own plan by default.

    Returns:
        One policy for each tuning, in its order.
    """
    banks: Mapping[str, PID] = env.tunings() if tunings is None else tunings
    operators = env.operator_plan() if plan is None else plan
    return {name: BehaviourPolicy(tuning, operators) for name, tuning in banks.items()}
