"""Automatic generation control, with and without anti-windup."""

import math

import jax.numpy as jnp

from neorl_core.control import PID, ConstantPolicy
from neorl_envs.blocks import pid_bank

LARGEST_POWER, LARGEST_VOLTAGE = 0.15, 0.05
AREA = 1800.0  # MW of machines
ACE = 30
NEVER = 1e9  # s


def generation_control(
    *, rate: float, gain: float, tracking_time: float, by_frequency: float = 0.0
) -> PID:
    """PI loops on the area control errors, shared equally among machines, with voltage support.

    Args:
        rate: Integral gain, relative to the control error of an area per machine, 1/s.
        gain: Proportional gain, relative to the same error.
        tracking_time: Anti-windup time constant with which the integral follows the ramps of the
            references, s.
        by_frequency: Change of a machine's voltage reference per hertz of its frequency, 1/Hz.
            Loads draw less power at a lower voltage, so this is the fastest available support.
    """
    return pid_bank(
        kp=(gain / AREA,) * 4 + (-by_frequency,) * 4,
        ti=(gain / rate,) * 4 + (math.inf,) * 4,
        setpoint=(0.0,) * 8,
        bias=(0.0,) * 8,
        low=(-LARGEST_POWER,) * 4 + (-LARGEST_VOLTAGE,) * 4,
        high=(LARGEST_POWER,) * 4 + (LARGEST_VOLTAGE,) * 4,
        measured=(ACE, ACE, ACE + 1, ACE + 1, 0, 1, 2, 3),
        dt=1.0,
        tracking_time=(tracking_time,) * 8,
    )


def winding_up() -> PID:
    """Slow integral action that keeps integrating while the references still ramp."""
    return generation_control(rate=0.03, gain=1e-3, tracking_time=NEVER)


def tuned_control() -> PID:
    """Fast action with anti-windup at the ramp limits, and voltage support by frequency."""
    return generation_control(rate=0.25, gain=0.8, tracking_time=5.0, by_frequency=0.25)


def bad_policy() -> ConstantPolicy:
    """The lowest power and voltage references, so that frequency and voltages fall."""
    low = jnp.asarray((-LARGEST_POWER,) * 4 + (-LARGEST_VOLTAGE,) * 4)
    return ConstantPolicy(low)
