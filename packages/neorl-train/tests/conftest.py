"""A learner small enough to check by hand, a log for it, a watcher, and a scalar plant."""

import math
from types import SimpleNamespace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float

from neorl_agents import BaseLearner
from neorl_agents.learning import Steps
from neorl_core import Channel, CostChannel, Spec, Step
from neorl_core.control import PID, ConstantPolicy
from neorl_core.testing import configure_tests
from neorl_envs import Dataset, collect_log
from neorl_envs.blocks import Term
from neorl_envs.datasets import data_statistics, dataset_from_columns
from neorl_envs.recording import OperatorPlan
from neorl_train import evaluate, verdict
from neorl_train.candidates import Candidate, Pool
from neorl_train.data import TrainingData


def pytest_configure() -> None:
    configure_tests()


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory):
    """Logs of plants are collected once for these tests, and the user's own are left alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _fewer_resamples(pytestconfig):
    """By night intervals have as many draws as those of users; by day they were half of a run."""
    with pytest.MonkeyPatch.context() as patch:
        if not pytestconfig.getoption("--nightly"):
            patch.setattr("neorl_train.judging._summary.RESAMPLES", 1_000)
        yield


@pytest.fixture(autouse=True, scope="module")
def _empty_pictures(request, pytestconfig):
    """By day the reports of runs have empty pictures, which would take as long as the runs."""
    with pytest.MonkeyPatch.context() as patch:
        runs = request.path.parent.name in ("candidates", "job")
        if runs and not pytestconfig.getoption("--nightly"):
            drawn = "neorl_train.pages._style.svg_figure"
            patch.setattr(drawn, lambda *_, **__: "<svg></svg>")
        yield


@pytest.fixture(autouse=True)
def _process_left_alone(monkeypatch):
    """Commands that run inside the test process do not change its switches."""
    monkeypatch.setattr("neorl_train._command.main.prepare_process", lambda: None)


class Line(BaseLearner):
    """Linear regression with noisy gradients: enough of a learner for every law of training."""

    steps: Steps = Steps(batch_size=8)
    learning_rate: float = 0.1
    cycle: int = eqx.field(static=True, default=2)

    reads: ClassVar[tuple[str, ...]] = ("obs", "action")
    rates: ClassVar[dict[str, str]] = {"weight": "learning_rate"}

    @property
    def batches_per_update(self) -> int:
        return self.cycle

    def fresh(self, spec, key):
        return {"weight": jax.random.normal(key, (spec.n_obs, spec.n_action))}, {}

    def init(self, spec, statistics, key, *, preparation=None, context=None):
        state = super().init(spec, statistics, key, preparation=preparation, context=context)
        nothing = {"multiplier": jnp.zeros(spec.n_cost), "noise_seen": jnp.zeros(())}
        return state.with_targets(**nothing)

    def update(self, state, batch, key):
        noise = jax.random.normal(key, ())
        weight, losses = state.parameters["weight"], []
        for i in range(self.cycle):
            error = batch.obs[i] @ weight - batch.action[i]
            weight = weight - self.learning_rate * (batch.obs[i].T @ error) / self.batch_size
            weight = weight + 1e-3 * noise
            losses.append(jnp.mean(jnp.square(error)))
        count = state.updates + 1
        new = state.with_parameters(weight=weight).with_counters(updates=count)
        new = new.with_targets(noise_seen=state.targets["noise_seen"] + noise)
        return new, {"loss": jnp.mean(jnp.stack(losses)), "count": count.astype(jnp.float32)}

    def policy(self, state):
        return ConstantPolicy(state.parameters["weight"][0])


class Notes:
    """A watcher that remembers."""

    def __init__(self):
        self.chunks, self.validations, self.saved, self.began, self.compiled = [], [], [], [], 0

    def begin(self, step):
        self.began.append(step)
        return False

    def compiling(self):
        self.compiled += 1

    def takes(self, memory):
        self.memory = memory

    def running(self):
        assert self.compiled

    def chunk(self, step, metrics):
        self.chunks.append((step, metrics))

    def validated(self, step, metrics):
        self.validations.append((step, metrics))

    def saving(self, step):
        self.saved.append(step)


def line_log(n_cost: int = 0, episodes: int = 20, length: int = 6, limit: float = 1.0) -> Dataset:
    rng = np.random.default_rng(3)
    rows = episodes * length
    obs = rng.normal(size=(rows + 1, 2)).astype(np.float32)
    ended = np.arange(1, rows + 1) % length == 0
    costs = tuple(CostChannel(f"cost_{i}", "1", limit, "episode") for i in range(n_cost))
    spec = Spec(
        obs=(Channel("level", "m", -9.0, 9.0), Channel("flow", "m3/h", -9.0, 9.0)),
        action=(Channel("valve", "%", -9.0, 9.0),),
        cost=costs,
        dt=60.0,
        horizon=length,
    )
    return dataset_from_columns(
        spec,
        obs=obs[:-1],
        action=obs[:-1] @ np.array([[0.5], [-0.25]], np.float32),
        reward=rng.normal(size=rows),
        cost=rng.uniform(size=(rows, n_cost)),
        next_obs=obs[1:],
        terminated=np.zeros(rows, bool),
        truncated=ended,
    )


@pytest.fixture
def make_line():
    return Line


@pytest.fixture
def make_notes():
    return Notes


@pytest.fixture(scope="session")
def make_log():
    return line_log


@pytest.fixture(scope="session")
def line_data():
    log = line_log(n_cost=0)
    rows = log.transitions._replace(mask=None)
    return TrainingData(rows, data_statistics(log), log.spec)


HIGH = 4.0
NOISE = 0.1


class Params(NamedTuple):
    pole: Float[Array, ""]


class Info(NamedTuple):
    success: Bool[Array, ""]
    terms: Float[Array, " term"]


class Plant(eqx.Module):
    """``x' = pole x + u + noise``, reward ``-x'``; trips above ``trip``; u inside [-4, 4].

    The noise and the trip are data, so that tests with other values of them share a program.
    """

    horizon: int = eqx.field(static=True, default=12)
    noise: float = 0.0
    trip: float = math.inf
    peak_limit: float = eqx.field(static=True, default=2.0)
    sum_limit: float = eqx.field(static=True, default=30.0)
    costs: int = eqx.field(static=True, default=2)

    name: ClassVar[str] = "Line-v0"
    reference: ClassVar[str] = "steady"
    reward_unit: ClassVar[str] = "EUR"
    terms: ClassVar[tuple[Term, ...]] = (Term("level", "m", -1.0), Term("steps", "1", 0.0))

    @property
    def spec(self) -> Spec:
        return Spec(
            obs=(Channel("level", "m", -10.0, 10.0),),
            action=(Channel("valve", "%", -HIGH, HIGH),),
            cost=(
                CostChannel("load", "m", self.sum_limit, "episode"),
                CostChannel("peak", "m", self.peak_limit, "step"),
            )[: self.costs],
            dt=60.0,
            horizon=self.horizon,
        )

    def action_rates(self):
        return (math.inf,)

    def bands(self):
        return {"level": (-math.inf, self.peak_limit)}

    def tunings(self):
        return {"steady": proportional(0.2), "hasty": proportional(0.6)}

    def operator_plan(self):
        one, steps = jnp.ones((1,)), jnp.asarray(1000, jnp.int32)
        never = jnp.asarray(1e9)
        return OperatorPlan(
            amplitude=0 * one,
            dwell=never,
            setpoint_step=0 * one,
            setpoint_high=one,
            setpoint_group=jnp.zeros((1,), jnp.int32),
            setpoint_every=never,
            hold_every=never,
            hold_shortest=steps,
            hold_longest=steps,
            watch_low=-jnp.inf * one,
            watch_high=jnp.inf * one,
        )

    def sample_params(self, key, *, spread=0.1):
        return Params(0.8 + spread * jax.random.uniform(key))

    def reset(self, params, key):
        level = 1.0 + jax.random.uniform(key)
        return (level, jnp.zeros((), jnp.int32)), level[None]

    def step(self, params, state, action, key):
        level, time = state
        applied = jnp.clip(action, -HIGH, HIGH)
        level = params.pole * level + applied[0] + self.noise * jax.random.normal(key)
        terminated = level > self.trip
        step = Step(
            obs=level[None],
            final_obs=level[None],
            reward=-level,
            cost=jnp.maximum(jnp.full((self.costs,), level), 0),
            applied=applied,
            terminated=terminated,
            truncated=(time + 1 >= self.horizon) & ~terminated,
            info=Info(
                success=~terminated & (time + 1 >= self.horizon),
                terms=jnp.stack([level, jnp.ones(())]),
            ),
        )
        return (level, time + 1), step


def proportional(gain, *, bias=0.0):
    one = jnp.ones((1,))
    return PID(
        kp=gain * one,
        ki=0 * one,
        kd=0 * one,
        tau=one,
        setpoint=0 * one,
        bias=bias * one,
        low=-HIGH * one,
        high=HIGH * one,
        dt=jnp.asarray(60.0),
        override_below=jnp.zeros((0,)),
        override_cap=jnp.zeros((0,)),
        measured=(0,),
    )


@pytest.fixture(scope="session")
def toy():
    """The plant and what evaluates it, by name: no module may import another here."""

    def run(plant, policies, *, candidate, n_starts=16, key=None, **options):
        """Policies are named by their seeds, such as ``"good-0"``."""
        named = [(*name.rpartition("-")[::2], policy) for name, policy in policies.items()]
        pool = Pool(tuple(Candidate(of, "learner", one, (int(n),)) for of, n, one in named))
        dataset = collect_log(plant, n_steps=16 * plant.horizon, key=jax.random.key(5), spread=0.1)
        return evaluate(
            plant,
            pool,
            dataset,
            candidate=candidate,
            key=jax.random.key(3) if key is None else key,
            n_starts=n_starts,
            **options,
        )

    return SimpleNamespace(
        Line=Plant, proportional=proportional, evaluate=run, HIGH=HIGH, NOISE=NOISE
    )


@pytest.fixture(scope="session")
def noisy(toy):
    """An evaluation with two seeds that are better than the reference and one that is worse."""
    policies = {
        "good-0": toy.proportional(0.5),
        "good-1": toy.proportional(0.7),
        "bad-0": toy.proportional(0.05),
    }
    result = toy.evaluate(toy.Line(noise=NOISE), policies, candidate="good-0", n_starts=100)
    return SimpleNamespace(evaluation=result, tables=result.tables, verdict=verdict(result.tables))
