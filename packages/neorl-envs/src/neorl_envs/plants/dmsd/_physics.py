"""Two masses, three springs and dampers: one explicit step."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import Channel
from neorl_envs.blocks import Actuator, Instrument, Relation, constant

DT = 0.2  # s
NEORL2 = "NeoRL-2, envs/dmsd.py"


class Constants(NamedTuple):
    """Springs and dampers from wall to wall, and the two masses."""

    stiffness: Float[Array, "3"] = constant((2.0, 2.0, 2.0), "N/m", NEORL2)
    damping: Float[Array, "3"] = constant((4.0, 4.0, 4.0), "N s/m", NEORL2)
    mass: Float[Array, "2"] = constant((20.0, 20.0), "kg", NEORL2)


RELATIONS = (
    Relation(1.2, "<=", "mass", "explicit steps of 0.2 s swing up: eigenvalues beyond -1"),
)


class Masses(NamedTuple):
    """Positions in m and velocities in m/s of the two masses, each of shape ``(2,)``."""

    position: Float[Array, "2"]
    velocity: Float[Array, "2"]


class Targets(NamedTuple):
    """Targets of the positions in m, before and from step 50, each of shape ``(2,)``."""

    first: Float[Array, "2"]
    second: Float[Array, "2"]


ACTUATORS = tuple(Actuator(Channel(f"force{i}", "N", -30.0, 30.0), start=0.0) for i in (1, 2))
INSTRUMENTS = (
    *(Instrument(Channel(f"x{i}", "m", -20.0, 20.0)) for i in (1, 2)),
    *(Instrument(Channel(f"v{i}", "m/s", -20.0, 20.0)) for i in (1, 2)),
    *(Instrument(Channel(f"target{i}", "m", -2.0, 2.0)) for i in (1, 2)),
)


def acceleration(c: Constants, masses: Masses, force: Float[Array, "2"]) -> Float[Array, "2"]:
    """Acceleration of both masses due to springs, dampers and forces, m/s2."""
    x, v = masses
    k, d = c.stiffness, c.damping
    pull = jnp.stack(
        [
            -(k[0] + k[1]) * x[0] + k[1] * x[1] - (d[0] + d[1]) * v[0] + d[1] * v[1],
            k[1] * x[0] - (k[1] + k[2]) * x[1] + d[1] * v[0] - (d[1] + d[2]) * v[1],
        ]
    )
    return (pull + force) / c.mass


def move(c: Constants, masses: Masses, force: Float[Array, "2"]) -> Masses:
    """The masses 0.2 s later, by one explicit Euler step as in the benchmark."""
    x, v = masses
    return Masses(x + DT * v, v + DT * acceleration(c, masses, force))
