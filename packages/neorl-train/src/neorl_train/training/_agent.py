"""A learner, its training and its policy as one object, for notebooks and other libraries."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import ALGORITHMS, Algorithm, load_policy, save_policy
from neorl_agents.artefact import policy_actions
from neorl_core import InputError, Policy, Spec
from neorl_envs import Dataset
from neorl_train.training._loop import train
from neorl_train.training._plan import plan_in_chunks, stride

PARITY_ROWS = 256
"""Number of the log's observations that are stored in a saved agent, with the resulting actions."""


class Agent:
    """A learner with ``train``, ``predict``, ``save`` and ``load``.

    It holds what the pure functions pass around: the state of the learner, and the memory of the
    policy between two calls of :meth:`predict`. For several seeds, checkpoints or validation use
    :func:`neorl_train.train`, and for a complete job with a verdict :func:`neorl_train.start`.

    Example:
        >>> from neorl_envs import collect_log, make
        >>> log = collect_log(make("DMSD-v0"), n_steps=300, key=jax.random.key(0))
        >>> agent = Agent("bc").train(log, updates=10)
        >>> agent.predict(log.transitions.obs[0]).shape
        (2,)
    """

    def __init__(self, algorithm: str | Algorithm, **hyperparameters: Any) -> None:
        """Makes an untrained agent.

        Args:
            algorithm: Name in ``neorl_agents.ALGORITHMS``, or a learner.
            **hyperparameters: Fields of the named learner, such as ``expectile=0.8``.

        Raises:
            InputError: If the name or a field is unknown, or fields are given with a learner
                object.
        """
        if isinstance(algorithm, str):
            kind = ALGORITHMS.find(algorithm)
            try:
                self.algorithm: Algorithm | None = kind(**hyperparameters)
            except TypeError as error:
                raise InputError(f"{algorithm}: {error}") from error
        elif hyperparameters:
            raise InputError(
                f"{', '.join(hyperparameters)} cannot be set here, because a learner has its own "
                "hyperparameters; set them in the learner"
            )
        else:
            self.algorithm = algorithm
        self.policy: Policy | None = None
        self.spec: Spec | None = None
        self._metadata: dict[str, Any] = {}
        self._parity_obs = np.zeros((0, 0), np.float32)
        self._carry: Any = None

    def train(self, log: Dataset, *, updates: int, seed: int = 0) -> "Agent":
        """Trains from scratch on every row of a log that is not masked.

        Args:
            log: Logged data.
            updates: Gradient steps of the critic (of the policy for behaviour cloning).
            seed: Seed of initial weights and batches; equal seeds give identical bits.

        Returns:
            This agent.

        Raises:
            InputError: If the agent was loaded from a file, which contains only the policy, if a
                hyperparameter is invalid, or if ``updates`` does not fit the learner.
        """
        if self.algorithm is None:
            raise InputError(
                "this agent was loaded from a file, which contains only the policy; create a new "
                "Agent to train"
            )
        plan = plan_in_chunks(updates, stride(self.algorithm))
        trained = train(self.algorithm, log, (seed,), plan)
        rows = np.linspace(0, log.n_rows - 1, PARITY_ROWS).round().astype(int)
        self.policy, self.spec = trained.policies[0], log.spec
        self._parity_obs = np.asarray(log.transitions.obs[rows])
        self._metadata = {
            "algorithm": type(self.algorithm).__name__,
            "hyperparameters": repr(self.algorithm),
            "updates": updates,
            "seed": seed,
        }
        self.reset()
        return self

    def predict(self, obs: Any) -> np.ndarray:
        """The action for an observation, both in physical units.

        A single observation is a step of an episode: a policy with memory remembers it until
        :meth:`reset`, and assumes that the action was carried out. The rows of a batch are the
        first steps of separate episodes, and are not remembered.

        Args:
            obs: Shape ``(obs,)``, or ``(row, obs)`` for a batch.

        Returns:
            Shape ``(act,)`` or ``(row, act)``.

        Raises:
            InputError: If the agent is not trained, or the observation has another shape.
        """
        policy, spec = self._ready()
        obs = jnp.asarray(obs, jnp.float32)
        if obs.ndim not in (1, 2) or obs.shape[-1] != spec.n_obs:
            names = ", ".join(channel.name for channel in spec.obs)
            raise InputError(
                f"expected one observation of {spec.n_obs} channels ({names}) or rows of them, got "
                f"shape {obs.shape}"
            )
        if obs.ndim == 2:
            return np.asarray(_first_actions(policy, obs))
        self._carry, action = _step(policy, self._carry, obs)
        return np.asarray(action)

    def reset(self) -> None:
        """Begins a new episode by clearing the memory of the policy."""
        policy, _ = self._ready()
        self._carry = policy.initial_carry()

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the policy as one sealed file, which ``neorl_agents.load_policy`` can also read.

        Args:
            path: Destination, conventionally ``*.safetensors``; an existing file is replaced.

        Returns:
            The digest of the file.

        Raises:
            InputError: If the agent is not trained.
            OSError: If the file cannot be written.
        """
        policy, spec = self._ready()
        return save_policy(path, policy, spec, self._parity_obs, self._metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Agent":
        """Reads an agent that can predict but cannot be trained.

        Args:
            path: File that :meth:`save`, ``save_policy`` or a run wrote.

        Raises:
            ArtefactError: If the file is damaged or contains something else.
            OSError: If it cannot be opened.
        """
        artefact = load_policy(path)
        agent = cls.__new__(cls)
        agent.algorithm, agent.policy, agent.spec = None, artefact.policy, artefact.spec
        agent._metadata, agent._parity_obs = artefact.metadata, artefact.parity_obs
        agent.reset()
        return agent

    def __repr__(self) -> str:
        """Describes the agent and whether it is trained."""
        name = self._metadata.get("algorithm") or type(self.algorithm).__name__
        state = "not trained" if self.policy is None else f"{self._metadata.get('updates')} updates"
        return f"Agent({name}, {state})"

    def _ready(self) -> tuple[Policy, Spec]:
        if self.policy is None or self.spec is None:
            raise InputError("this agent is not trained; call train(log, updates=...) first")
        return self.policy, self.spec


@jax.jit
def _step(policy: Policy, carry: Any, obs: jax.Array) -> tuple[Any, jax.Array]:
    carry, action = policy(carry, obs, None)
    return policy.sent(carry, action), action


@jax.jit
def _first_actions(policy: Policy, obs: jax.Array) -> jax.Array:
    return policy_actions(policy, obs)
