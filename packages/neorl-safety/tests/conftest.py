import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_core import Channel, InputError, Spec
from neorl_core.control import PID
from neorl_core.testing import configure_tests
from neorl_safety.constraints import (
    KINDS,
    ActionConstraints,
    Channels,
    Interval,
    Record,
    Situation,
)
from neorl_safety.filters import Context


def pytest_configure() -> None:
    configure_tests(strict_dtypes=True)


SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-40, -1e-40, 1.2e-38, 0, -0.0, 1, -1, 1e6, 0.1],
    np.float32,
)


@pytest.fixture
def spec() -> Spec:
    return Spec(
        obs=(Channel("level", "m", 0.0, 2.0), Channel("temperature", "K", 280.0, 400.0)),
        action=(Channel("valve", "%", 0.0, 100.0), Channel("jacket", "K", 280.0, 320.0)),
        cost=(),
        dt=60.0,
        horizon=100,
    )


@pytest.fixture
def pid() -> PID:
    """Two loops for the channels of ``spec``."""
    return PID(
        kp=jnp.array([-20.0, 2.0]),
        ki=jnp.array([-0.01, 0.002]),
        kd=jnp.array([0.0, 0.0]),
        tau=jnp.array([1.0, 1.0]),
        setpoint=jnp.array([1.0, 330.0]),
        bias=jnp.array([50.0, 300.0]),
        low=jnp.array([0.0, 280.0]),
        high=jnp.array([100.0, 320.0]),
        dt=jnp.array(60.0),
        override_below=jnp.zeros((0,)),
        override_cap=jnp.zeros((0,)),
        measured=(0, 1),
    )


def _hostile(rng: np.random.Generator, shape: tuple[int, ...], fraction: float) -> np.ndarray:
    """Normal draws with a fraction of special values; none in every third row."""
    calm = rng.normal(0, 2, shape).astype(np.float32)
    wild = (fraction * (np.arange(shape[0]) % 3 > 0) > rng.random(shape).T).T
    return np.where(wild, rng.choice(SPECIAL, shape), calm)


def _limits(rng: np.random.Generator, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Well-formed limits in every second case; hostile, and perhaps inverted, in the others."""
    spread = rng.choice([0.5, 2.0, 20.0], shape[:1])[:, None]
    ends = np.sort(rng.normal(0, spread, (4, *shape)), axis=0).astype(np.float32)
    rates = rng.choice(np.array([0, 0.01, 1, 10, 1e30, np.inf], np.float32), (2, *shape))
    well_formed = {
        "low": ends[1],
        "high": ends[2],
        "rate_up": rates[0],
        "rate_down": rates[1],
        "actuator_low": ends[0],
        "actuator_high": ends[3],
    }
    bad_case = (np.arange(shape[0]) % 2 == 1)[:, None]
    return {
        name: np.where(bad_case & (rng.random(shape) < 0.3), _hostile(rng, shape, 0.7), values)
        for name, values in well_formed.items()
    }


@pytest.fixture(scope="session")
def hostile_cases() -> tuple[ActionConstraints, Context, np.ndarray]:
    """10,000 cases along the first axis of every leaf, for two channels and three observations."""
    count, rng = 10_000, np.random.default_rng(20)
    limits = _limits(rng, (count, 2))
    template = ActionConstraints(*[np.zeros(2)] * 6, names=("a", "b"), units=("1", "1"))
    fields = ("low", "high", "rate_up", "rate_down", "actuator_low", "actuator_high")
    constraints = jax.tree.unflatten(
        jax.tree.structure(template), [jnp.asarray(limits[name]) for name in fields]
    )
    context = Context(
        obs=jnp.asarray(_hostile(rng, (count, 3), 0.1)),
        previous=jnp.asarray(_hostile(rng, (count, 2), 0.4)),
        dt=jnp.asarray(
            np.where(rng.random(count) < 0.3, _hostile(rng, (count,), 1.0), 1.0).astype(np.float32)
        ),
        fallback_action=jnp.asarray(_hostile(rng, (count, 2), 0.4)),
    )
    return constraints, context, jnp.asarray(_hostile(rng, (count, 2), 0.5))


class CeilingConstraint(NamedTuple):
    """While one observation is above a threshold, every action is capped."""

    obs: Array
    above: Array
    highest: Array


class CeilingKind:
    """A kind of constraint from outside."""

    def to_records(self, channels: Channels, c: CeilingConstraint) -> list[dict]:
        above, highest = float(c.above), [float(high) for high in c.highest]
        return [{"obs": int(c.obs), "above": above, "highest": highest}]

    def from_records(self, channels: Channels, records: Sequence[Record]) -> CeilingConstraint:
        ((where, fields),) = records
        if not isinstance(fields["above"], float):
            raise InputError(f"{where}: above must be a number")
        return ceiling_constraint(**fields)

    def describe(self, channels: Channels, c: CeilingConstraint) -> list[str]:
        return [
            f"{channel.name} at most {float(high):g} {channel.unit} while observation "
            f"{int(c.obs)} is above {float(c.above):g}"
            for channel, high in zip(channels.action, c.highest, strict=True)
        ]

    def lower(self, c: CeilingConstraint, situation: Situation) -> Interval:
        tripped = situation.obs[c.obs] > c.above
        high = jnp.where(tripped, c.highest, jnp.inf)
        return Interval(jnp.full_like(high, -jnp.inf), high, jnp.zeros(high.shape, jnp.bool_))


def ceiling_constraint(*, obs: int, above: float, highest: list[float]) -> CeilingConstraint:
    return CeilingConstraint(
        jnp.asarray(obs, jnp.int32), jnp.asarray(above, jnp.float32), jnp.asarray(highest)
    )


@pytest.fixture
def own_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds that a test registers are forgotten after it."""
    monkeypatch.setattr(KINDS, "_registered", {})


@pytest.fixture
def ceiling(own_kinds: None) -> types.SimpleNamespace:
    """A kind from outside, and what makes a constraint of it; the test registers it."""
    return types.SimpleNamespace(kind=CeilingKind(), constraint=ceiling_constraint)


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """``distribution(group, entry)`` installs a distribution that declares one entry point."""

    def install(group: str, entry: str) -> None:
        folder = tmp_path / "site" / "foreign-0.3.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 0.3\n")
        (folder / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        monkeypatch.syspath_prepend(tmp_path / "site")

    return install
