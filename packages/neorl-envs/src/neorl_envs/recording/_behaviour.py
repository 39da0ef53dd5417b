"""Policies that fill a log: every controller of the plant together with its operators."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Policy
from neorl_core.control import follow
from neorl_envs.recording._operators import (
    OperatorPlan,
    OperatorState,
    in_manual,
    init_operators,
    moved_setpoint,
    operator_step,
)
from neorl_envs.recording._recordable import Recordable
from neorl_envs.recording._setpoints import setpoint_of, with_setpoint


class BehaviourCarry(NamedTuple):
    """Carry of the controller and the operators.

    Attributes:
        control: Carry of the controller.
        operators: State of the operators.
        started: Whether the operators have begun; their first signs are drawn in the first step.
        position: The action that the plant received last, shape ``(act,)``; NaN before the
            first step.
        signal: Test signal added in the last step, shape ``(act,)``.
    """

    control: Any
    operators: OperatorState
    started: Bool[Array, ""]
    position: Float[Array, " act"]
    signal: Float[Array, " act"]


class BehaviourPolicy(eqx.Module):
    """One controller with set-point steps, manual holds and test signals: random, so it needs keys.

    Acts as :func:`neorl_envs.collect_log` does, so the logged behaviour can be met again on
    chosen starts and compared with another policy there, start by start. Holds and test signals
    fit any policy; set points are stepped where the controller has as many as the plan steps.

    Attributes:
        controller: The controller.
        plan: What the operators do.
    """

    controller: Policy
    plan: OperatorPlan

    @property
    def steps_setpoints(self) -> bool:
        """Whether the operators can step set points of this controller."""
        held = setpoint_of(self.controller)
        return held.shape == self.plan.setpoint_step.shape and held.size > 0

    def initial_carry(self) -> BehaviourCarry:
        """All loops in automatic; the operators begin with the first step."""
        amplitude = self.plan.amplitude
        nothing = jnp.zeros((), jnp.int32)
        offset = jnp.zeros_like(self.plan.setpoint_step)
        return BehaviourCarry(
            control=self.controller.initial_carry(),
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
        for_controller = jax.random.fold_in(key, 2)
        fresh = init_operators(self.plan, for_start)
        operators = jax.tree.map(
            lambda old, new: jnp.where(carry.started, old, new), carry.operators, fresh
        )
        operators, manual, signal = operator_step(self.plan, operators, obs, for_operators)
        controller = with_setpoint(self.controller, self.setpoint(operators))
        control, proposed = controller(carry.control, obs, for_controller)
        action = jnp.where(manual, carry.position, proposed + signal)
        started = jnp.ones((), jnp.bool_)
        return BehaviourCarry(control, operators, started, carry.position, signal), action

    def setpoint(self, operators: OperatorState) -> Float[Array, " loop"]:
        """The set points in force; empty for a controller without."""
        held = setpoint_of(self.controller)
        return moved_setpoint(self.plan, operators, held) if self.steps_setpoints else held

    def sent(self, carry: BehaviourCarry, action: Float[Array, " act"]) -> BehaviourCarry:
        """Reports the received action, minus the test signal; actuators in manual are followed."""
        manual, received = in_manual(self.plan, carry.operators), action - carry.signal
        to_controller = received
        if hasattr(self.controller, "follow"):
            to_controller = jnp.where(manual, jnp.nan, received)
        control = self.controller.sent(carry.control, to_controller)
        if hasattr(self.controller, "follow"):
            control = follow(self.controller, control, jnp.where(manual, received, jnp.nan))
        return carry._replace(control=control, position=action)


def behaviour_policies(
    env: Recordable,
    controllers: Mapping[str, Policy] | None = None,
    plan: OperatorPlan | None = None,
) -> dict[str, BehaviourPolicy]:
    """The policies that take turns, episode by episode, in :func:`neorl_envs.collect_log`.

    Args:
        env: An environment of this package.
        controllers: The controllers by name; the environment's own by default.
        plan: What the operators do; the environment's own plan by default.

    Returns:
        One policy for each controller, in its order.
    """
    policies: Mapping[str, Policy] = env.tunings() if controllers is None else controllers
    operators = env.operator_plan() if plan is None else plan
    return {name: BehaviourPolicy(policy, operators) for name, policy in policies.items()}
