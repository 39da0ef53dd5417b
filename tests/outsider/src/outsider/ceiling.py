"""A constraint that depends on a measurement: a low ceiling of an action above a level."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from neorl_core import InputError
from neorl_safety.constraints import Interval

FIELDS = {"channel", "obs", "above", "high"}


class Ceiling(NamedTuple):
    """``u[act] <= high`` while ``obs[measured] > above``; one entry for every record."""

    act: jax.Array
    measured: jax.Array
    above: jax.Array
    high: jax.Array


class CeilingKind:
    """``{"kind": "ceiling", "channel": ..., "obs": 0, "above": 1.5, "high": 10.0}``."""

    def to_records(self, channels, constraint):
        return [
            {
                "channel": channels.action[int(act)].name,
                "obs": int(measured),
                "above": float(above),
                "high": float(high),
            }
            for act, measured, above, high in zip(*constraint, strict=True)
        ]

    def from_records(self, channels, records):
        names = [channel.name for channel in channels.action]
        for record in records:
            if set(record.fields) != FIELDS or record.fields["channel"] not in names:
                raise InputError(
                    f"{record.where}: expected {sorted(FIELDS)} with a channel of "
                    f"{', '.join(names)}, got {dict(record.fields)}"
                )
        rows = [record.fields for record in records]
        return Ceiling(
            act=jnp.asarray([names.index(row["channel"]) for row in rows], jnp.int32),
            measured=jnp.asarray([int(row["obs"]) for row in rows], jnp.int32),
            above=jnp.asarray([float(row["above"]) for row in rows], jnp.float32),
            high=jnp.asarray([float(row["high"]) for row in rows], jnp.float32),
        )

    def describe(self, channels, constraint):
        return [
            f"{channels.action[int(act)].name} at most {float(high):g} "
            f"{channels.action[int(act)].unit} while "
            f"observation {int(measured)} is above {float(above):g}"
            for act, measured, above, high in zip(*constraint, strict=True)
        ]

    def lower(self, constraint, situation):
        free = jnp.full_like(situation.start, jnp.inf)
        closed = situation.obs[constraint.measured] > constraint.above
        ceilings = jnp.where(closed, constraint.high, jnp.inf).astype(free.dtype)
        high = free.at[constraint.act].min(ceilings)
        return Interval(-free, high, jnp.isnan(high))


CEILING = CeilingKind()
