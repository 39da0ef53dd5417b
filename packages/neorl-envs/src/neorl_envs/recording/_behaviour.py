"""Behaviour policies of a log: every controller of the plant combined with its operators."""

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
        started: Whether the operators have begun; their initial state is sampled in the first
            step.
        position: The last action that the plant received, shape ``(act,)``; NaN before the first
            step.
        signal: Test signal added in the last step, shape ``(act,)``.
    """

    control: Any
    operators: OperatorState
    started: Bool[Array, ""]
    position: Float[Array, " act"]
    signal: Float[Array, " act"]


class BehaviourPolicy(eqx.Module):
    """A controller with random setpoint steps, manual holds and test signals.

    It acts exactly as in :func:`neorl_envs.collect_log`, so the logged behaviour can be run again
    from chosen starts and compared there with another policy. Because it is random, it needs a key.
    Holds and test signals work with any policy; setpoints are stepped only if the controller has
    as many as the plan.

    Attributes:
        controller: The controller.
        plan: Plan of the operators.
    """

    controller: Policy
    plan: OperatorPlan

    @property
    def steps_setpoints(self) -> bool:
        """Whether the operators can step setpoints of this controller."""
        setpoints = setpoint_of(self.controller)
        return setpoints.shape == self.plan.setpoint_step.shape and setpoints.size > 0

    def initial_carry(self) -> BehaviourCarry:
        """A carry with all loops in automatic; the operators begin in the first step."""
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
        """Makes one step of operators and controller.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Random key for the operators.

        Returns:
            The new carry and the action. A channel in manual keeps its last position. If that is
            unknown, the action is NaN, which leaves the actuator where it is.
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
        """The active setpoints; empty for a controller without setpoints."""
        setpoints = setpoint_of(self.controller)
        return (
            moved_setpoint(self.plan, operators, setpoints) if self.steps_setpoints else setpoints
        )

    def sent(self, carry: BehaviourCarry, action: Float[Array, " act"]) -> BehaviourCarry:
        """Informs the controller of the received action without the test signal.

        Loops in manual follow the received action.
        """
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
        plan: Plan of the operators; the environment's own by default.

    Returns:
        One policy for each controller, in the same order.
    """
    policies: Mapping[str, Policy] = env.tunings() if controllers is None else controllers
    operators = env.operator_plan() if plan is None else plan
    return {name: BehaviourPolicy(policy, operators) for name, policy in policies.items()}
