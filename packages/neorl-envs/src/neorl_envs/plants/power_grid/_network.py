"""Admittances, the power flow of the schedule, and the matrices from sources to buses."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from neorl_envs.plants.power_grid._constants import (
    BASE,
    BUSES,
    LINES,
    LOAD_BUSES,
    MACHINE_BASE,
    SLACK,
    TIE_LENGTH,
    TIES,
    TRANSFORMERS,
    Constants,
    incidence,
)

PORTS = (0, 1, 2, 3, *LOAD_BUSES)
MOVING = BUSES - 1
NEWTON_STEPS = 8


class PowerFlow(NamedTuple):
    """The steady state of the schedule.

    Attributes:
        voltage: Complex voltage of the buses, shape ``(11,)``, relative to the angle of machine 1.
        injected: Complex power of the machines, on 100 MVA, shape ``(4,)``.
        tie: Power from area 1 to area 2, MW.
    """

    voltage: Complex[Array, "11"]
    injected: Complex[Array, "4"]
    tie: Float[Array, ""]


def _complex(x: Array) -> Array:
    return jax.lax.complex(x, jnp.zeros_like(x))


def _branches(pairs: tuple, admittance: Array) -> Array:
    ends = jnp.asarray(incidence(pairs), admittance.dtype)
    with jax.default_matmul_precision("highest"):
        return (ends.T * admittance[None]) @ ends


def tie_admittance(c: Constants) -> tuple[Array, Array]:
    """Series and half the shunt admittance of one tie circuit."""
    r, x, b = c.line * TIE_LENGTH
    return 1 / jax.lax.complex(r, x), jax.lax.complex(jnp.zeros_like(b), b / 2)


def admittance(c: Constants, circuits: tuple[int, int] = (2, 2)) -> Complex[Array, "11 11"]:
    """Bus admittance matrix with capacitors but without machines and loads."""
    r, x, b = c.line
    unit = 1 / jax.lax.complex(r, x)
    lengths = jnp.asarray([length for *_, length in LINES], c.line.dtype)
    zero = jnp.zeros_like(x)
    transformer = 1 / jax.lax.complex(zero, c.transformer * BASE / MACHINE_BASE)
    series, half = tie_admittance(c)
    count = jnp.asarray(circuits, c.line.dtype)
    y = _branches(LINES, unit / _complex(lengths)) + _branches(TIES, series * _complex(count))
    y = y + _branches(TRANSFORMERS, jnp.broadcast_to(transformer, (4,)))
    at_lines = jnp.asarray(np.abs(incidence(LINES)), c.line.dtype)
    at_ties = jnp.asarray(np.abs(incidence(TIES)), c.line.dtype)
    charging = lengths @ at_lines * b / 2 + (count @ at_ties) * jnp.imag(half)
    charging = charging.at[jnp.asarray(LOAD_BUSES)].add(c.capacitor / BASE)
    return y + jnp.diag(jax.lax.complex(jnp.zeros_like(charging), charging))


def power_flow(c: Constants) -> PowerFlow:
    """Solves the power balances by Newton's method; the third machine is the slack."""
    y = admittance(c)
    loads = jnp.zeros((BUSES, 2), c.line.dtype).at[jnp.asarray(LOAD_BUSES)].set(c.load / BASE)
    scheduled = jnp.zeros(BUSES, c.line.dtype).at[:4].set(c.power / BASE) - loads[:, 0]

    def voltage(x: Array) -> Array:
        angle = jnp.concatenate([x[:SLACK], jnp.zeros(1, x.dtype), x[SLACK:MOVING]])
        size = jnp.concatenate([c.voltage, x[MOVING:]])
        return jax.lax.complex(size * jnp.cos(angle), size * jnp.sin(angle))

    def mismatch(x: Array) -> Array:
        v = voltage(x)
        power = v * jnp.conj(y @ v)
        active, reactive = jnp.real(power) - scheduled, jnp.imag(power) + loads[:, 1]
        return jnp.concatenate([active[:SLACK], active[SLACK + 1 :], reactive[4:]])

    def newton(_: Array, x: Array) -> Array:
        return x - jnp.linalg.solve(jax.jacfwd(mismatch)(x), mismatch(x))

    start = jnp.concatenate([jnp.zeros(MOVING), jnp.ones(BUSES - 4)]).astype(c.line.dtype)
    with jax.default_matmul_precision("highest"):
        v = voltage(jax.lax.fori_loop(0, NEWTON_STEPS, newton, start))
        return PowerFlow(v, (v * jnp.conj(y @ v))[:4], tie_power(c, v, jnp.asarray(2.0)))


def tie_power(c: Constants, v: Complex[Array, "11"], circuits: Array) -> Float[Array, ""]:
    """Power from bus 7 towards bus 8, MW."""
    series, half = tie_admittance(c)
    current = (v[6] - v[7]) * series + v[6] * half
    return BASE * circuits.astype(c.line.dtype) * jnp.real(v[6] * jnp.conj(current))


def norton(c: Constants) -> Complex[Array, ""]:
    """Admittance of a machine's subtransient source on 100 MVA."""
    return MACHINE_BASE / BASE / jax.lax.complex(c.ra, c.x2)


def load_admittance(c: Constants, flow: PowerFlow) -> Complex[Array, "2"]:
    """Constant admittance of the scheduled loads."""
    size = jnp.abs(flow.voltage[jnp.asarray(LOAD_BUSES)])
    share = c.load / (BASE * size[:, None] ** 2)
    return jax.lax.complex(share[:, 0], -share[:, 1])


def from_ports(c: Constants, loads: Complex[Array, "2"]) -> Float[Array, "3 2 11 6"]:
    """Real and imaginary parts of the bus voltages per unit of current at machines and loads.

    The first axis stands for both tie lines complete, one circuit of the first tie line out, and
    one circuit of the second out.
    """
    columns = []
    for circuits in ((2, 2), (1, 2), (2, 1)):
        y = admittance(c, circuits)
        y = y.at[jnp.arange(4), jnp.arange(4)].add(norton(c))
        buses = jnp.asarray(LOAD_BUSES)
        z = jnp.linalg.inv(y.at[buses, buses].add(loads))[:, jnp.asarray(PORTS)]
        columns.append(jnp.stack([jnp.real(z), jnp.imag(z)]))
    return jnp.stack(columns)


def with_loads(ports: Float[Array, "2 11 6"], more: Complex[Array, "2"]) -> Complex[Array, "11 4"]:
    """Bus voltages per unit of machine current, with additional load admittance at buses 7 and 9.

    Uses Woodbury's identity with an explicitly inverted two-by-two matrix.
    """
    z = jax.lax.complex(ports[0], ports[1])
    machines, loads = z[:, :4], z[:, 4:]
    at = z[jnp.asarray(LOAD_BUSES)]
    a, b = 1 + more[0] * at[0, 4], more[0] * at[0, 5]
    d, e = more[1] * at[1, 4], 1 + more[1] * at[1, 5]
    row, other = more[0] * at[0, :4], more[1] * at[1, :4]
    first, second = (e * row - b * other), (a * other - d * row)
    correction = loads[:, :1] * first[None] + loads[:, 1:] * second[None]
    return machines - correction / (a * e - b * d)
