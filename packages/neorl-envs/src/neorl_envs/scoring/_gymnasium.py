"""Whole episodes of a policy in a Gymnasium environment of the user's own.

Such an environment is Python code that no program can be compiled from, so several copies of it are
stepped in turn, and one compiled call computes their actions.
"""

import functools
import importlib
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Channel, InputError, Policy, Spec, as_arrays
from neorl_core.infrastructure import nearest_name
from neorl_envs.ingest import Rollout

PREFIX = "gym:"
"""How the name of a Gymnasium environment begins."""
AT_ONCE = 16
"""Copies of an environment that exist at the same time."""
SLACK = 1e-3
"""Part of a range by which two statements of it may differ, for rounding and logged extremes."""


class GymnasiumJudge:
    """A Gymnasium environment in which policies of a log are scored.

    Policies act in the log's physical units and get the environment's observations as they are.
    Episode by episode this is Gymnasium's own loop: ``env.reset(seed=seed)``, then ``env.step``
    with the action, in the type of the action space and clipped to it, until the episode ends.

    Args:
        name: ``gym:ID`` for one of Gymnasium's own environments, or ``gym:MODULE:ID``, where
            importing ``MODULE`` registers ``ID``; the current folder is searched too.
        spec: Channels of the log, whose ranges, costs and longest episode are compared.

    Attributes:
        name: The name as given.
        spec: The channels as given.
        origin: Distribution and version that the environment comes from, or its file.
        package: Package or module that registers it; empty for one of Gymnasium's own.
        horizon: Longest episode in steps: the environment's own, or that of the log if it has none.
        notes: Differences from the log that do not prevent scoring, one sentence each.

    Raises:
        InputError: If the module or the environment is missing or fails, or its spaces are not
            those of the log; one line says what differs.

    Example:
        >>> obs = Channel("x", "1", -1, 1), Channel("y", "1", -1, 1), Channel("speed", "1", -8, 8)
        >>> spec = Spec(obs, (Channel("torque", "1", -2, 2),), (), dt=0.05, horizon=200)
        >>> GymnasiumJudge("gym:Pendulum-v1", spec).horizon
        200
    """

    def __init__(self, name: str, spec: Spec) -> None:
        self.name, self.spec = name, spec
        module, self._identifier = _parts(name)
        if module:
            _import(name, module)
        self.origin, self.package = _origin(module), module.partition(".")[0]
        _require_known(name, module, self._identifier)
        self._copies: list[Any] = []
        # An environment may hold a process of its own, which must not outlive this one.
        weakref.finalize(self, _close, self._copies)
        env = self._environments(1)[0]
        self.notes = _compare(name, env, spec)
        limit = getattr(env.spec, "max_episode_steps", None)
        self.horizon = int(limit or spec.horizon)
        if not limit:
            self.notes += (
                f"{name} declares no max_episode_steps, so its episodes end after {spec.horizon} "
                "steps, the longest episode of the log",
            )

    def rollouts(self, policy: Policy, seeds: Sequence[int]) -> list[Rollout]:
        """Runs one episode of a policy for every seed.

        Args:
            policy: A policy in the physical units of the log.
            seeds: Seeds of the resets.

        Returns:
            One rollout for each seed; rewards are in double precision as the environment gave them.

        Raises:
            InputError: If the environment raises, or returns an observation, a reward or a cost
                that is not finite or of another shape; with the seed and the step.
        """
        policy = as_arrays(policy)
        chunks = [seeds[i : i + AT_ONCE] for i in range(0, len(seeds), AT_ONCE)]
        return [rollout for chunk in chunks for rollout in self._chunk(policy, chunk)]

    def returns(self, policy: Policy, seeds: Sequence[int]) -> Float[np.ndarray, " episode"]:
        """Undiscounted return of one episode for every seed, summed step by step."""
        return np.array([episode_return(one) for one in self.rollouts(policy, seeds)])

    def _environments(self, count: int) -> list[Any]:
        while len(self._copies) < count:
            try:
                self._copies.append(gymnasium.make(self._identifier))
            except Exception as error:
                raise InputError(f"{self.name} cannot be made: {_words(error)}") from error
        return self._copies[:count]

    def _chunk(self, policy: Policy, seeds: Sequence[int]) -> list[Rollout]:
        envs = self._environments(len(seeds))
        episodes = [
            _Episode(self.name, env, seed, self.spec) for env, seed in zip(envs, seeds, strict=True)
        ]
        keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))
        obs = np.stack([episode.obs for episode in episodes])
        carry, action = _first(policy, obs, keys)
        for step in range(self.horizon):
            applied = np.asarray(action)
            sent = applied.copy()
            for i, episode in enumerate(episodes):
                if not episode.over:
                    sent[i] = episode.step(applied[i], step, last=step + 1 == self.horizon)
            if all(episode.over for episode in episodes):
                break
            obs = np.stack([episode.obs for episode in episodes])
            carry, action = _next(policy, carry, sent, obs, keys, step + 1)
        return [episode.rollout() for episode in episodes]


def _close(environments: Sequence[Any]) -> None:
    """Closes all of them, also if one cannot be closed."""
    with ExitStack() as stack:
        for env in environments:
            stack.callback(env.close)


# One policy after the other in one program, not batched: a batched product rounds differently from
# the product of one observation, and scores are those of the policy on its own.


@jax.jit
def _first(
    policy: Policy, obs: Float[Array, "episode obs"], keys: PRNGKeyArray
) -> tuple[Any, Float[Array, "episode act"]]:
    def act(each: tuple[Array, PRNGKeyArray]) -> tuple[Any, Array]:
        return policy(policy.initial_carry(), each[0], jax.random.fold_in(each[1], 0))

    return jax.lax.map(act, (obs, keys))


@jax.jit
def _next(
    policy: Policy,
    carry: Any,
    sent: Float[Array, "episode act"],
    obs: Float[Array, "episode obs"],
    keys: PRNGKeyArray,
    step: int,
) -> tuple[Any, Float[Array, "episode act"]]:
    def act(each: tuple[Any, Array, Array, PRNGKeyArray]) -> tuple[Any, Array]:
        carry, sent, obs, key = each
        return policy(policy.sent(carry, sent), obs, jax.random.fold_in(key, step))

    return jax.lax.map(act, (carry, sent, obs, keys))


class _Episode:
    """One running episode of one copy of the environment."""

    def __init__(self, name: str, env: Any, seed: int, spec: Spec) -> None:
        self._where = f"{name}, episode with seed {seed}"
        self._env, self._spec = env, spec
        with _explained(f"{self._where}: reset()"):
            obs, _ = env.reset(seed=int(seed))
        self.obs = self._observation(obs, "after its reset")
        self.over = False
        self._observations, self._rows = [self.obs], []

    def step(self, action: np.ndarray, step: int, *, last: bool) -> np.ndarray:
        """Makes one step and returns the action that was sent."""
        space = self._env.action_space
        sent = np.clip(action.astype(space.dtype), space.low, space.high)
        when = f"in step {step}"
        with _explained(f"{self._where}: step() raised {when} for the action {sent.tolist()}"):
            obs, reward, terminated, truncated, info = self._env.step(sent)
        self.obs = self._observation(obs, when)
        value = np.asarray(reward, np.float64)
        if value.shape != () or not np.isfinite(value):
            raise InputError(
                f"{self._where}: the reward {when} is {reward}, not one finite number; correct the "
                "environment"
            )
        self._observations.append(self.obs)
        cost = self._cost(info, when)
        self._rows.append((sent, value, bool(terminated), bool(truncated) or last, cost))
        self.over = bool(terminated) or bool(truncated) or last
        return sent

    def rollout(self) -> Rollout:
        """The episode so far."""
        action, reward, terminated, truncated, cost = zip(*self._rows, strict=True)
        return Rollout(
            np.stack(self._observations),
            np.stack(action),
            np.asarray(reward, np.float64),
            np.asarray(terminated, np.bool_),
            np.asarray(truncated, np.bool_),
            np.asarray(cost, np.float64).reshape(len(action), self._spec.n_cost),
        )

    def _observation(self, obs: Any, when: str) -> np.ndarray:
        values = np.asarray(obs, np.float32)
        if values.shape != (self._spec.n_obs,):
            raise InputError(
                f"{self._where}: the observation {when} has shape {values.shape}, where its space "
                f"has ({self._spec.n_obs},); correct the environment"
            )
        unknown = np.flatnonzero(~np.isfinite(values))
        if unknown.size:
            at = int(unknown[0])
            raise InputError(
                f"{self._where}: {self._spec.obs[at].name} (observation {at}) is {values[at]} "
                f"{when}, on which no policy can act; correct the environment"
            )
        return values

    def _cost(self, info: Any, when: str) -> list[float]:
        names = [channel.name for channel in self._spec.cost]
        if not names:
            return []
        if all(name in info for name in names):
            values = np.array([info[name] for name in names], np.float64)
        else:
            values = np.ravel(np.asarray(info.get("cost", ()), np.float64))
        if values.shape != (len(names),) or not np.isfinite(values).all():
            raise InputError(
                f"{self._where}: the log has the costs {', '.join(names)}, and the info {when} "
                f"contains {sorted(info)}; put each cost into it by its name, or all as the finite "
                "vector 'cost'"
            )
        return values.tolist()


def episode_return(rollout: Rollout) -> float:
    """Undiscounted return, added step by step in double precision as a plain loop does."""
    return float(np.add.accumulate(rollout.rewards)[-1])


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise InputError(f"{what}: {_words(error)}; correct the environment") from error


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def _parts(name: str) -> tuple[str, str]:
    module, _, identifier = name.removeprefix(PREFIX).rpartition(":")
    if not identifier or (not module and name.count(":") > 1):
        raise InputError(
            f"{name} is not the name of a Gymnasium environment; write gym:ID for one of "
            "Gymnasium's own, such as gym:Pendulum-v1, or gym:MODULE:ID"
        )
    return module, identifier


def _import(name: str, module: str) -> None:
    """Imports the module that registers the environment, from the current folder too."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InputError(f"{name}: importing {module} failed: {_words(error)}") from error
        raise InputError(
            f"{name}: there is no module {error.name}, neither in this folder nor in this Python's "
            "environment; install it, or start in the folder of the file"
        ) from error
    except Exception as error:
        raise InputError(f"{name}: importing {module} failed: {_words(error)}") from error
    finally:
        sys.path.remove(here)


def _origin(module: str) -> str:
    package = module.partition(".")[0] or "gymnasium"
    distribution = next(iter(_distributions().get(package, ())), "")
    if distribution:
        return f"{distribution} {metadata.version(distribution)}"
    return str(getattr(sys.modules[package], "__file__", None) or package)


@functools.cache
def _distributions() -> Any:
    return metadata.packages_distributions()


def _require_known(name: str, module: str, identifier: str) -> None:
    try:
        gymnasium.spec(identifier)
    except gymnasium.error.Error as error:
        near = nearest_name(identifier, gymnasium.registry)
        hint = f"did you mean {near}? " if near else ""
        after = f" after {module} was imported" if module else ""
        raise InputError(
            f"{name}: Gymnasium knows no environment {identifier}{after}; {hint}An environment of "
            "your own is named gym:MODULE:ID, and MODULE calls gymnasium.register"
        ) from error


def _compare(name: str, env: Any, spec: Spec) -> tuple[str, ...]:
    """Refuses other spaces than those of the log, and describes what differs otherwise."""
    notes: list[str] = []
    for kind, space, channels in (
        ("observation", env.observation_space, spec.obs),
        ("action", env.action_space, spec.action),
    ):
        _require_box(name, kind, space, len(channels))
        declared = env.unwrapped.metadata.get(f"{kind}_names")
        names = [channel.name for channel in channels]
        for i, (given, logged) in enumerate(zip(declared or names, names, strict=False)):
            if given != logged:
                raise InputError(
                    f"{name} calls {kind} {i} {given!r}, and the log calls it {logged!r}; name the "
                    f"environment of this log, or give both the same {kind} names"
                )
        ends = zip(channels, np.ravel(space.low), np.ravel(space.high), strict=True)
        for channel, low, high in ends:
            notes += _compare_range(name, kind, channel, float(low), float(high))
    return tuple(notes)


def _require_box(name: str, kind: str, space: Any, width: int) -> None:
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        wrapper = {
            "observation": "gymnasium.wrappers.FlattenObservation",
            "action": "a gymnasium.ActionWrapper",
        }[kind]
        raise InputError(
            f"{name} has the {kind} space {space}, and the policies of a log have one vector of "
            f"numbers; wrap the environment with {wrapper}"
        )
    if space.shape != (width,):
        raise InputError(
            f"{name} has {space.shape[0]} {kind}{'s' * (space.shape[0] > 1)}, and the log has "
            f"{width}; name the environment that the log was recorded in"
        )


def _compare_range(name: str, kind: str, channel: Channel, low: float, high: float) -> list[str]:
    """What differs between the range of a channel in the log and that of the environment.

    Observations may be unbounded in an environment, and in a log have the range of its data.
    """
    slack = SLACK * (channel.high - channel.low)
    beyond = channel.low < low - slack or channel.high > high + slack
    logged, own = f"{channel.low:g} to {channel.high:g}", f"{low:g} to {high:g}"
    if kind == "action" and beyond:
        raise InputError(
            f"{channel.name} is {logged} in the log, and {name} takes {own}; scale the log's "
            "actions as the environment does, or wrap the environment with "
            "gymnasium.wrappers.RescaleAction"
        )
    narrower = channel.low > low + slack or channel.high < high - slack
    if kind == "action" and narrower:
        return [
            f"{name} takes {channel.name} from {own}, and policies stay within the log's {logged}"
        ]
    if kind == "observation" and beyond:
        return [
            f"{channel.name} is {logged} in the log, and {name} declares {own}: check that it is "
            "the log's environment, with the same scaling"
        ]
    return []
