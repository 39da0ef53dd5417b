"""A family of candidates: today's controller, shifted by the best constants of a lookup table."""

from itertools import product
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from neorl_agents.artefact import POLICY_KINDS, PolicyKind, kind_of
from neorl_agents.retuning import select
from neorl_core import Spec
from neorl_core.control import follow
from neorl_train.candidates import Candidate, Family, Made

SHIFTS = (-0.05, 0.0, 0.05)
"""Shifts that are tried in each half of the range, as a share of the range of the action."""


class Shifted(eqx.Module):
    """``action = clip(base + table[bin])``; the bin is that of the first observation."""

    base: Any
    table: jnp.ndarray
    edge: jnp.ndarray
    low: jnp.ndarray
    high: jnp.ndarray

    def initial_carry(self):
        return self.base.initial_carry(), jnp.zeros_like(self.low)

    def __call__(self, carry, obs, key=None):
        inner, action = self.base(carry[0], obs, key)
        shifted = action + self.table[(obs[0] > self.edge).astype(int)]
        clipped = jnp.clip(shifted, self.low, self.high)
        return (inner, clipped - action), clipped

    def sent(self, carry, action):
        return self.base.sent(carry[0], action - carry[1]), carry[1]

    def follow(self, carry, action):
        return follow(self.base, carry[0], action), carry[1]


def _static(policy):
    kind = kind_of(policy.base)
    return {"kind": kind, "static": POLICY_KINDS.find(kind).static(policy.base)}


def _template(spec: Spec, static):
    base = POLICY_KINDS.find(static["kind"]).template(spec, static["static"])
    zeros = jnp.zeros(spec.n_action)
    return Shifted(base, jnp.zeros((2, spec.n_action)), jnp.zeros(()), zeros, zeros)


KIND = PolicyKind(Shifted, _static, _template)


def _names(inputs):
    return ["shift"] if inputs.config.retuning.controller else []


def _make(material):
    """The table with the best prediction; today's controller itself where none is better."""
    base, spec = material.incumbent, material.spec
    low, high = (jnp.asarray([getattr(c, end) for c in spec.action]) for end in ("low", "high"))
    middle = jnp.asarray((spec.obs[0].low + spec.obs[0].high) / 2)
    tables = {
        f"{pair}": jnp.outer(jnp.asarray(pair), high - low) for pair in product(SHIFTS, SHIFTS)
    }
    policies = {name: Shifted(base, table, middle, low, high) for name, table in tables.items()}
    today = f"{(0.0, 0.0)}"
    best, _ = select(material.plants, policies, today)
    metadata = {"controller": "shift", "seed": material.seed, "table": tables[best].tolist()}
    text = f"today's controller with the shifts {best} of its range"
    shift = Candidate("shift", "shift", policies[best], (material.seed,), text, metadata=metadata)
    return Made([shift], [f"shift: {len(tables)} tables were compared in the plant model"])


SHIFT = Family(_names, _make)
