import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_core.control import PID
from neorl_core.testing import configure_tests
from neorl_safety.constraints import ActionConstraints
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


def _hostile(rng: np.random.Generator, shape: tuple[int, ...], share: float) -> np.ndarray:
    """Normal draws with a share of special values; none in every third row."""
    calm = rng.normal(0, 2, shape).astype(np.float32)
    wild = (share * (np.arange(shape[0]) % 3 > 0) > rng.random(shape).T).T
    return np.where(wild, rng.choice(SPECIAL, shape), calm)


def _limits(rng: np.random.Generator, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Well-formed limits in every second case; hostile, and perhaps inverted, in the others."""
    spread = rng.choice([0.5, 2.0, 20.0], shape[:1])[:, None]
    ends = np.sort(rng.normal(0, spread, (4, *shape)), axis=0).astype(np.float32)
    rates = rng.choice(np.array([0, 1e-40, 0.01, 1, 10, 1e30, np.inf], np.float32), (2, *shape))
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
