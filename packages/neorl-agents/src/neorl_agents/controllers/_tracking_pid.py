"""PID loops whose setpoints are observations."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Spec
from neorl_core.control import PID, PIDCarry, Tunable, inside


class TrackingPID(eqx.Module):
    """A bank of PID loops that reads its setpoints from the observation.

    Attributes:
        loops: The loops; their own setpoints hold where ``source`` is -1.
        source: Index of the observation that carries the setpoint of each loop, or -1; static.
    """

    loops: PID
    source: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    def initial_carry(self) -> PIDCarry:
        """The carry before the first measurement."""
        return self.loops.initial_carry()

    def __call__(
        self, carry: PIDCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[PIDCarry, Float[Array, " act"]]:
        """Takes one step of every loop; NaN where its measurement or setpoint is not finite."""
        constant_setpoint = jnp.asarray(self.loops.setpoint)
        values = [constant_setpoint[i] if j < 0 else obs[j] for i, j in enumerate(self.source)]
        setpoint = jnp.stack(values).astype(constant_setpoint.dtype)
        known = jnp.isfinite(setpoint)
        # A lost setpoint leaves the integral unchanged, because there is no error to integrate.
        measurement = obs[jnp.asarray(self.loops.measured)].astype(constant_setpoint.dtype)
        safe_setpoint = jnp.where(
            known, setpoint, jnp.where(jnp.isfinite(measurement), measurement, 0)
        )
        loops = dataclasses.replace(self.loops, setpoint=safe_setpoint)
        carry, action = loops(carry, obs, None)
        return carry, jnp.where(known, action, jnp.nan)

    def sent(self, carry: PIDCarry, action: Float[Array, " act"]) -> PIDCarry:
        """See :meth:`neorl_core.control.PID.sent`."""
        return self.loops.sent(carry, action)

    def follow(self, carry: PIDCarry, action: Float[Array, " act"]) -> PIDCarry:
        """See :meth:`neorl_core.control.PID.follow`."""
        return self.loops.follow(carry, action)

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """Tunable parameters of the loops, except setpoints that are observations.

        Args:
            spec: Channels, for the names.
        """
        from_obs = {f"setpoint {i}" for i, source in enumerate(self.source) if source >= 0}
        declared = [
            number
            for number in self.loops.tunables(spec)
            if f"{number.moves[0].leaf} {number.moves[0].entries[0]}" not in from_obs
        ]
        return inside(declared, "loops")


def pid_policy(loops: PID, source: tuple[int, ...]) -> PID | TrackingPID:
    """The loops themselves if every setpoint is fixed, else a :class:`TrackingPID`."""
    return TrackingPID(loops, source) if any(index >= 0 for index in source) else loops
