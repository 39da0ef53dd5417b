"""Batches of plants as a Gymnasium vector environment, stepped by one compiled program."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import InputError, Step
from neorl_envs.closed_loop import where_over
from neorl_envs.interfaces._episode import (
    Draws,
    Episode,
    action_space,
    advance,
    as_plant,
    begin,
    checked_action,
    checked_params,
    named_information,
    observation_space,
)
from neorl_envs.interfaces._gymnasium import EpisodeRecord
from neorl_envs.plants._protocol import Plant
from neorl_envs.wrappers._base import started_where_over

# One step of a batch of plants, including resets after the end of an episode.


class Rules(NamedTuple):
    """Settings of a vector environment; hashable.

    Attributes:
        physical: Whether actions are in physical units rather than [-1, 1].
        mode: Gymnasium's autoreset mode.
        limit: Steps after which an episode is truncated.
    """

    physical: bool
    mode: str
    limit: int


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def vector_step(
    env: Plant,
    draws: Draws,
    rules: Rules,
    episodes: Episode,
    over: Bool[Array, " plant"],
    actions: Array,
) -> tuple[Episode, tuple[Step, Bool[Array, "plant act"]]]:
    """Simulates one control period of every plant.

    ``over`` flags the episodes that ended in the previous step. Returns the episodes, and the steps
    with flags for action entries outside their range.
    """

    def one(episode: Episode, ended: Array, action: Array) -> tuple[Episode, tuple[Step, Array]]:
        return _one(env, draws, rules, episode, ended, action)

    return jax.vmap(one)(episodes, over, actions)


def _one(
    env: Plant, draws: Draws, rules: Rules, episode: Episode, ended: Array, action: Array
) -> tuple[Episode, tuple[Step, Array]]:
    after, step, outside = advance(env, rules.physical, episode, action)
    late = (after.time >= rules.limit) & ~step.terminated
    step = step._replace(truncated=step.truncated | late)
    if rules.mode == AutoresetMode.DISABLED.value:
        return after, (step, outside)
    key, for_start = jax.random.split(after.key)
    after = after._replace(key=key)
    same_step = rules.mode == AutoresetMode.SAME_STEP.value
    now = step.terminated | step.truncated if same_step else ended
    after, obs = started_where_over(
        now, lambda: begin(env, draws, None, for_start), (after, step.obs)
    )
    if same_step:
        return after, (step._replace(obs=obs), outside)
    nothing: Any = jax.tree.map(jnp.zeros_like, step)
    started = nothing._replace(obs=obs, final_obs=obs)
    return after, where_over(ended, (started, jnp.zeros_like(outside)), (step, outside))


OPTIONS = ("params", "reset_mask")


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv):
    """A batch of plants as a Gymnasium vector environment; see :func:`gymnasium.make_vec`.

    There are three ways to continue after the end of an episode, named as in Gymnasium:

    * ``"SameStep"`` (default): the next episode begins in the step that ends the old one. The last
      observation of the old episode is ``infos["final_obs"]``, ``(plant, obs)``, valid where
      ``infos["_final_obs"]`` is true; bootstrap from it. ``infos["final_info"]`` has the costs.
    * ``"NextStep"``: the following step starts the new episode, ignores its action and has reward
      0.
    * ``"Disabled"``: the caller resets finished plants with ``options={"reset_mask": over}``.

    ``infos`` contains ``cost``, ``cost_sum``, ``applied``, ``outside`` and the fields of
    ``Step.info`` of the plant. All of them belong to the transition, never to the reset. Plant
    ``i`` of ``reset(seed=s)`` begins like the single environment with ``reset(seed=s + i)``.
    Python's ``fork`` is incompatible with JAX's threads, so ``vectorization_mode="async"`` requires
    ``vector_kwargs={"context": "spawn"}``.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as Gymnasium's own, one a mode
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "render_modes": ["rgb_array"],
        "render_fps": 10,
    }

    def __init__(
        self,
        plant: str | Plant,
        num_envs: int = 1,
        *,
        physical: bool = False,
        preset: str = "plant",
        spread: float = 0.15,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Creates the vector environment.

        Args:
            plant: Name of the environment, for example ``"ChemicalReactor-v0"``, or a plant.
            num_envs: Number of plants.
            physical: Whether actions are in physical units rather than [-1, 1].
            preset: Preset of the parameters.
            spread: Relative spread of the randomised parameters; 0 for no randomisation.
            autoreset_mode: How to continue after the end of an episode.
            max_episode_steps: Steps after which an episode is truncated, unless the horizon of the
                plant is shorter.
            render_mode: ``"rgb_array"`` (needs the extra ``render``) or ``None``.

        Raises:
            ValueError: If a name is unknown or a number is below one.
        """
        for name, value in (("num_envs", num_envs), ("max_episode_steps", max_episode_steps)):
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        self.env = as_plant(plant, preset, spread)
        self.draws = Draws(preset, float(spread))
        limit = min(max_episode_steps or self.env.spec.horizon, self.env.spec.horizon)
        self.rules = Rules(physical, _mode(autoreset_mode).value, limit)
        self.metadata = {**self.metadata, "autoreset_mode": _mode(autoreset_mode)}
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = observation_space(self.env.spec)
        self.single_action_space = action_space(self.env.spec, physical=physical)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._records = [EpisodeRecord(self.env) for _ in range(num_envs if render_mode else 0)]
        self._episodes: Episode | None = None
        self._obs = np.zeros((num_envs, self.env.spec.n_obs), np.float32)
        self._over = np.zeros(num_envs, np.bool_)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode in every plant.

        Args:
            seed: Seed of the first plant, incremented by one for each further plant, or a list of
                seeds.
            options: ``"params"``, with a leading axis over plants, sets the parameters;
                ``"reset_mask"`` restarts only the plants where it is true.

        Raises:
            ValueError: If an option is unknown or has a wrong shape, a parameter is physically
                impossible, or the list of seeds has a wrong length.
        """
        params = checked_params(self.env, options, OPTIONS)
        mask = self._mask((options or {}).get("reset_mask"))
        self._check_batch(params)
        fresh, first = _begin_all(self.env, self.draws, params, self._keys(seed))
        if self._episodes is not None and not mask.all():
            fresh = _choose(jnp.asarray(mask), fresh, self._episodes)
        self._episodes = fresh
        self._obs = np.where(mask[:, None], np.asarray(first, np.float32), self._obs)
        self._over = self._over & ~mask
        for i, record in enumerate(self._records):
            if mask[i]:
                record.begin(self._obs[i])
        return self._obs.copy(), {}

    def step(
        self, actions: Float[np.ndarray, "plant act"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Simulates one control period of every plant.

        Raises:
            RuntimeError: If the environment has not been reset, or if automatic resets are disabled
                and an episode has ended.
            ValueError: If the shape of the actions is not ``(plant, act)``.
        """
        if self._episodes is None:
            raise RuntimeError("call reset() before step()")
        given = checked_action(actions, (self.num_envs, self.env.spec.n_action))
        if self.rules.mode == AutoresetMode.DISABLED.value and self._over.any():
            raise RuntimeError(
                f"the episode of plant {int(np.argmax(self._over))} is over; "
                "call reset(options={'reset_mask': over}) first"
            )
        self._episodes, answer = vector_step(
            self.env, self.draws, self.rules, self._episodes, self._over, given
        )
        # Copies: JAX's own buffers are read-only.
        step, outside = jax.tree.map(np.array, answer)
        began = self._over if self.rules.mode == AutoresetMode.NEXT_STEP.value else None
        self._over = step.terminated | step.truncated
        self._obs = step.obs.astype(np.float32)
        infos = named_information(step.info)
        infos |= {"cost": step.cost, "cost_sum": step.cost.sum(axis=-1)}
        infos |= {"applied": step.applied, "outside": outside}
        if self.rules.mode == AutoresetMode.SAME_STEP.value and self._over.any():
            final = {"final_obs": step.final_obs, "final_info": dict(infos)}
            infos |= {**final, "_final_obs": self._over, "_final_info": self._over}
            self._remember(step, self._over)
            self._over = np.zeros_like(self._over)
        else:
            self._remember(step, began)
        reward = step.reward.astype(np.float64)
        return self._obs.copy(), reward, step.terminated, step.truncated, infos

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Images of the running episodes, one array ``(height, width, 3)`` for every plant."""
        return tuple(record.picture() for record in self._records) if self.render_mode else None

    def _keys(self, seed: Any) -> PRNGKeyArray:
        """One key per plant; equal seeds give the same key as in the single environment."""
        n = self.num_envs
        seeds = [seed + i for i in range(n)] if isinstance(seed, int | np.integer) else seed
        seeds = [None] * n if seeds is None else list(seeds)
        if len(seeds) != n:
            raise InputError(f"a list of seeds has one for each of {n} plants, got {len(seeds)}")
        known = [int(each) for each in seeds if each is not None]
        if known:  # for unseeded plants and later resets, independent of each plant's own key
            self.np_random = np.random.default_rng([len(known), *known])
        sources = [
            self.np_random if each is None else seeding.np_random(int(each))[0] for each in seeds
        ]
        draws = [source.integers(2**31) for source in sources]
        return jax.vmap(jax.random.key)(jnp.asarray(np.asarray(draws), jnp.uint32))

    def _mask(self, mask: Any) -> np.ndarray:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        given = np.asarray(mask)
        if given.shape != (self.num_envs,) or given.dtype != np.bool_ or not given.any():
            raise InputError(
                f"reset_mask must be {self.num_envs} truth values, at least one of them true, "
                f"got {given.dtype} of shape {given.shape}"
            )
        if self._episodes is None and not given.all():
            raise InputError("the first reset must include all plants; leave reset_mask out")
        return given

    def _check_batch(self, params: Any) -> None:
        for leaf, one in zip(
            jax.tree.leaves(params), jax.tree.leaves(self.env.default_params()), strict=False
        ):
            if np.shape(leaf) != (self.num_envs, *np.shape(one)):
                raise InputError(
                    f"params must have a leading axis of {self.num_envs}, one entry per plant, "
                    f"got a leaf of shape {np.shape(leaf)}"
                )

    def _remember(self, step: Any, began: np.ndarray | None) -> None:
        for i, record in enumerate(self._records):
            if began is not None and began[i]:
                record.begin(self._obs[i])
            else:
                record.add(step.obs[i], step.applied[i], step.reward[i], step.cost[i])


def _mode(mode: AutoresetMode | str) -> AutoresetMode:
    names = {one.value: one for one in AutoresetMode}
    if isinstance(mode, AutoresetMode):
        return mode
    if mode not in names:
        raise InputError(f"autoreset_mode must be one of {', '.join(names)}, got {mode!r}")
    return names[mode]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _begin_all(env: Plant, draws: Draws, params: Any, keys: PRNGKeyArray) -> tuple[Episode, Array]:
    return jax.vmap(functools.partial(begin, env, draws))(params, keys)


@jax.jit
def _choose(mask: Bool[Array, " plant"], fresh: Episode, old: Episode) -> Episode:
    return jax.vmap(where_over)(mask, fresh, old)
