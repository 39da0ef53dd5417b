"""Sixth-order machines with regulators, stabilisers and governors."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from neorl_envs.plants.power_grid import _network as net
from neorl_envs.plants.power_grid._constants import BASE, MACHINE_BASE, Constants

FREQUENCY = 60.0
SPEED = 2 * jnp.pi * FREQUENCY
SHARE = MACHINE_BASE / BASE


class Machines(NamedTuple):
    """State of the four machines, each of shape ``(4,)``, on their own base.

    Attributes:
        angle: Angle of the rotors, relative to machine 1, rad.
        speed: Relative deviation from 60 Hz, so that float32 resolves it.
        eq1: Transient voltage, q axis.
        ed1: Transient voltage, d axis.
        psi1d: Subtransient flux, d axis.
        psi2q: Subtransient flux, q axis.
        sensed: Terminal voltage at the regulators.
        washed: State of the stabilisers' washout.
        lead1: State of their first lead-lag stage.
        lead2: State of their second lead-lag stage.
        valve: Opening of the valves.
        steam: State of the turbines.
    """

    angle: Float[Array, "4"]
    speed: Float[Array, "4"]
    eq1: Float[Array, "4"]
    ed1: Float[Array, "4"]
    psi1d: Float[Array, "4"]
    psi2q: Float[Array, "4"]
    sensed: Float[Array, "4"]
    washed: Float[Array, "4"]
    lead1: Float[Array, "4"]
    lead2: Float[Array, "4"]
    valve: Float[Array, "4"]
    steam: Float[Array, "4"]


class Schedule(NamedTuple):
    """Quantities that follow from the constants, computed once.

    Attributes:
        start: The machines in the steady state of the schedule.
        field: Field voltages in this state, shape ``(4,)``.
        terminal: Terminal voltages in this state, shape ``(4,)``.
        power: Mechanical power in this state, shape ``(4,)``.
        tie: Scheduled power from area 1 to area 2, MW.
        load: Scheduled load admittances, real and imaginary, shape ``(2, 2)``.
        megawatt: Scheduled loads, MW, shape ``(2,)``.
        ports: Result of :func:`from_ports`, shape ``(3, 2, 11, 6)``.
    """

    start: Machines
    field: Float[Array, "4"]
    terminal: Float[Array, "4"]
    power: Float[Array, "4"]
    tie: Float[Array, ""]
    load: Float[Array, "2 2"]
    megawatt: Float[Array, "2"]
    ports: Float[Array, "3 2 11 6"]


class Electrical(NamedTuple):
    """Electrical quantities of the machines, each of shape ``(4,)``, on their own base.

    Attributes:
        voltage: Complex terminal voltage.
        current: Complex current into the network.
        d: Current in the d axis.
        q: Current in the q axis.
        torque: Electrical power in the air gap.
    """

    voltage: Complex[Array, "4"]
    current: Complex[Array, "4"]
    d: Float[Array, "4"]
    q: Float[Array, "4"]
    torque: Float[Array, "4"]


def ratios(c: Constants) -> tuple[Array, Array, Array, Array]:
    """The factors between transient and subtransient quantities of both axes (Sauer and Pai)."""
    d, q = c.xd1 - c.xl, c.xq1 - c.xl
    return (c.x2 - c.xl) / d, (c.xd1 - c.x2) / d**2, (c.x2 - c.xl) / q, (c.xq1 - c.x2) / q**2


def rotate(angle: Float[Array, "4"]) -> Complex[Array, "4"]:
    """Rotates machine axes to those of the network; the q axis leads the rotor's angle."""
    return jax.lax.complex(jnp.sin(angle), -jnp.cos(angle))


def source(c: Constants, x: Machines) -> tuple[Array, Array]:
    """Subtransient voltages of the d and the q axis."""
    gd1, _, gq1, _ = ratios(c)
    return gq1 * x.ed1 - (1 - gq1) * x.psi2q, gd1 * x.eq1 + (1 - gd1) * x.psi1d


def electrical(c: Constants, x: Machines, z: Complex[Array, "4 4"]) -> Electrical:
    """Solves machines and network by one product with a constant matrix."""
    ed, eq = source(c, x)
    turn = rotate(x.angle)
    e = jax.lax.complex(ed, eq) * turn
    v = jnp.sum(z * (net.norton(c) * e)[None], axis=-1)
    current = (e - v) / jax.lax.complex(c.ra, c.x2)
    axes = current * jnp.conj(turn)
    d, q = jnp.real(axes), jnp.imag(axes)
    return Electrical(v, current, d, q, ed * d + eq * q)


def rates(
    c: Constants, s: Schedule, z: Complex[Array, "4 4"], inputs: Float[Array, "8"], x: Machines
) -> Machines:
    """Time derivatives of the machines.

    ``z`` maps source currents to terminal voltages; ``inputs`` are changes of power and voltage
    references, per unit of the machine base.
    """
    power, voltage = inputs[:4], inputs[4:]
    gd1, gd2, gq1, gq2 = ratios(c)
    now = electrical(c, x, z)
    (lead_a, lag_a), (lead_b, lag_b) = c.leads
    first = c.stabiliser * (x.speed - x.washed)
    second = x.lead1 + lead_a / lag_a * (first - x.lead1)
    damping = x.lead2 + lead_b / lag_b * (second - x.lead2)
    damping = jnp.clip(damping, -c.stabiliser_limit, c.stabiliser_limit)
    error = s.terminal + voltage + damping - x.sensed
    field = jnp.clip(s.field + c.exciter * error, c.field[0], c.field[1])
    lead, lag = c.turbine
    mechanical = x.steam + lead / lag * (x.valve - x.steam)
    opening = jnp.clip(s.power + power - x.speed / c.droop, 0, c.valve_limit)
    nominal = jnp.asarray(SPEED, x.speed.dtype)
    return Machines(
        angle=nominal * (x.speed - x.speed[0]),
        speed=(mechanical - now.torque) / (2 * c.inertia),
        eq1=(field - x.eq1 - (c.xd - c.xd1) * (gd1 * now.d + gd2 * (x.eq1 - x.psi1d))) / c.td1,
        ed1=((c.xq - c.xq1) * (gq1 * now.q - gq2 * (x.psi2q + x.ed1)) - x.ed1) / c.tq1,
        psi1d=(x.eq1 - x.psi1d - (c.xd1 - c.xl) * now.d) / c.td2,
        psi2q=-(x.psi2q + x.ed1 + (c.xq1 - c.xl) * now.q) / c.tq2,
        sensed=(jnp.abs(now.voltage) - x.sensed) / c.sensor,
        washed=(x.speed - x.washed) / c.washout,
        lead1=(first - x.lead1) / lag_a,
        lead2=(second - x.lead2) / lag_b,
        valve=(opening - x.valve) / c.valve,
        steam=(x.valve - x.steam) / lag,
    )


def steady_state(c: Constants) -> Schedule:
    """Computes the steady state of the schedule from its power flow."""
    flow = net.power_flow(c)
    load = net.load_admittance(c, flow)
    v = flow.voltage[:4]
    current = jnp.conj(flow.injected / v) / SHARE
    rotor = v + jax.lax.complex(c.ra, c.xq) * current
    angle = jnp.angle(rotor)
    axes = current * jnp.conj(rotate(angle))
    terminal = v * jnp.conj(rotate(angle))
    d, q = jnp.real(axes), jnp.imag(axes)
    ed2 = jnp.real(terminal) + c.ra * d - c.x2 * q
    eq2 = jnp.imag(terminal) + c.ra * q + c.x2 * d
    eq1 = eq2 + (c.xd1 - c.x2) * d
    ed1 = ed2 - (c.xq1 - c.x2) * q
    zero = jnp.zeros_like(d)
    power = ed2 * d + eq2 * q
    size = jnp.abs(v)
    start = Machines(
        angle=angle - angle[0],
        speed=zero,
        eq1=eq1,
        ed1=ed1,
        psi1d=eq1 - (c.xd1 - c.xl) * d,
        psi2q=-ed1 - (c.xq1 - c.xl) * q,
        sensed=size,
        washed=zero,
        lead1=zero,
        lead2=zero,
        valve=power,
        steam=power,
    )
    return Schedule(
        start=start,
        field=eq1 + (c.xd - c.xd1) * d,
        terminal=size,
        power=power,
        tie=flow.tie,
        load=jnp.stack([jnp.real(load), jnp.imag(load)]),
        megawatt=c.load[:, 0],
        ports=net.from_ports(c, load),
    )
