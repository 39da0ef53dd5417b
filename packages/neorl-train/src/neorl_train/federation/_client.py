"""One site: it keeps its data, trains on them, and answers with the change in its parameters."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import Learner, LearnerState
from neorl_agents.learning import Site, Training, log_tables, train_chunk
from neorl_core import DataStatistics, InputError, Policy, as_arrays
from neorl_core.federated import clip_update
from neorl_core.statistics import range_statistics
from neorl_train.data._training_data import TrainingData
from neorl_train.federation._messages import (
    Introduction,
    RoundStart,
    Update,
    Vector,
    compress,
    flat,
    layout_of,
)
from neorl_train.federation._privacy import Pairings, as_whole, noise_share
from neorl_train.federation._settings import GROUP, Federation
from neorl_train.training._queues import run_keys


@jax.jit
def _clip(change: Any, clip_norm: Any) -> Any:
    return clip_update(change, clip_norm=clip_norm)


class Proximal(eqx.Module):
    """A learner that is pulled towards given parameters after every update.

    After a gradient step ``w`` becomes ``(w + eta mu centre) / (1 + eta mu)``, with the learning
    rate ``eta`` of the parameter: the exact step for FedProx's term ``mu / 2 |w - centre|^2``. It
    follows the step for the learner's own loss (forward-backward splitting), so that the
    optimiser's statistics do not mix the two.

    Attributes:
        learner: The learner itself, with array leaves.
        centre: Parameters at the beginning of the round.
        strength: ``eta mu`` of every parameter, by name.

    Source: Li et al., Federated optimization in heterogeneous networks, arXiv 1812.06127.
    """

    learner: Any
    centre: dict[str, Any]
    strength: dict[str, Any]

    @property
    def batch_size(self) -> int:
        """Batch size of the learner."""
        return self.learner.batch_size

    @property
    def batches_per_update(self) -> int:
        """Batches per update of the learner."""
        return self.learner.batches_per_update

    @property
    def sampler(self) -> Any:
        """Sampler of the learner."""
        return self.learner.sampler

    def update(self, state: LearnerState, batch: Any, key: Any) -> Any:
        """One update of the learner, followed by the pull."""
        state, metrics = self.learner.update(state, batch, key)
        updated = {
            name: jax.tree.map(
                lambda w, c, s=self.strength[name]: (w + s * c) / (1 + s),
                state.parameters[name],
                self.centre[name],
            )
            for name in state.parameters
        }
        return state.with_parameters(**updated), metrics


def federated_learner(learner: Learner) -> Learner:
    """Returns the learner if sites can train it together.

    Raises:
        InputError: If it needs a fit beforehand, or rollouts.
    """
    name = type(learner).__name__
    if learner.fits():
        raise InputError(
            f"{name} fits {', '.join(learner.fits())} before it learns, and sites cannot share "
            "that fit; choose a learner without it, such as td3_bc or iql"
        )
    if learner.source(Site(jnp.asarray(0, jnp.int32))).cycle:
        raise InputError(f"{name} makes its own rollouts; choose a learner that learns from a log")
    return learner


class Client:
    """A site of a federation. Only this object can access its data; messages leave it.

    Args:
        name: Name of the site.
        number: Its number among all sites, from 0, which determines its random numbers.
        learner: Learner with plain numbers and resolved schedules.
        data: Its training data.
        settings: Settings of the federation.
        seed: Seed of the federation; the same for all sites.
        device: Device that trains.
    """

    def __init__(
        self,
        name: str,
        number: int,
        learner: Learner,
        data: TrainingData,
        settings: Federation,
        *,
        seed: int,
        device: Any = None,
    ) -> None:
        self.name, self._learner, self._data, self._settings = name, learner, data, settings
        self._device = device or jax.local_devices()[0]
        self._initial, chunks = run_keys(seed)
        arrays = as_arrays(learner)
        self._key, self._arrays = jax.device_put((chunks, arrays), self._device)
        self._source = jax.device_put(
            learner.source(Site(jnp.asarray(number, jnp.int32))), self._device
        )
        tables = log_tables(learner, data.spec, data.rows_for(learner))
        self._tables = jax.device_put(tables, self._device)
        self._preparation: Any = None
        self._training: Training | None = None
        self._residual = np.zeros(0, np.float32)
        self.per_round = settings.federation.local_updates // learner.batches_per_update
        self.pairings = Pairings(name) if settings.messages.secure_sum else None
        self._pending: tuple[int, Vector] | None = None
        self._noise_secret = np.frombuffer(secrets.token_bytes(32), np.uint8)
        self._masked_round = -1
        self.last_error: tuple[float, float] = (0.0, 0.0)
        """Norms of what compression removed from the last update, and of the update itself."""

    def introduce(self) -> Introduction:
        """Everything that the server must know before the first round."""
        merged = self._settings.federation.scaling == "merged"
        statistics = jax.device_get(self._data.statistics_for(self._learner)) if merged else None
        return Introduction(self.name, self._data.n_rows, self._data.spec, statistics)

    def begin(self, merged: DataStatistics | None) -> Vector:
        """Creates the initial state of all sites, with the same bits at every site.

        Args:
            merged: Statistics of all sites together; ``None`` to use declared ranges.

        Returns:
            The initial parameters.
        """
        statistics = range_statistics(self._data.spec) if merged is None else merged
        self._preparation = self._learner.prepare(self._data.spec, statistics)
        self._initialise(0)
        parameters = self._state.parameters
        self._layout = layout_of(parameters, type(self._learner).__name__)
        self._residual = np.zeros(self._layout.size if self._settings.compressed else 0, np.float32)
        return flat(parameters)

    def restart(self, rounds: int) -> None:
        """Starts again after a failure, with the present counters of the other sites.

        Optimiser states and the unsent parts of updates are lost; parameters arrive with the next
        round.
        """
        self._initialise(rounds * self.per_round)
        self._residual = np.zeros_like(self._residual)

    def work(self, start: RoundStart) -> Callable[[], Update]:
        """Starts the local updates of a round; they run on the device while other sites start.

        Args:
            start: Number of the round and the common parameters.

        Returns:
            A function that waits for the updates and returns the answer.
        """
        self.adopt(start.parameters)
        assert self._training is not None
        learner = self._learner_of(start.parameters)
        first = np.int32(start.round * self.per_round)
        self._training, _ = train_chunk(
            learner, self._source, self._training, self._tables, first, self._key,
            n_updates=self.per_round,
        )  # fmt: skip
        return lambda: self._answer(start)

    def _answer(self, start: RoundStart) -> Update:
        change = flat(self._state.parameters) - start.parameters
        messages = self._settings.messages
        if self._settings.private:
            change = np.asarray(_clip(change, np.float32(self._settings.privacy.clip_norm)))
        arrays: tuple[np.ndarray, ...] = (change,)
        if self._settings.compressed:
            corrected = change + self._residual
            message = compress(corrected, bits=messages.bits, fraction=messages.fraction)
            if np.isfinite(corrected).all():
                self._residual = message.residual
            left, sent = np.linalg.norm(message.residual), np.linalg.norm(corrected)
            self.last_error = float(left), float(sent)
            arrays = message.arrays
        if messages.secure_sum:
            arrays = ()  # the change itself leaves the site only with a mask
        self._pending = (start.round, change)
        return Update(self.name, start.round, self._data.n_rows, arrays)

    def mask(self, start: RoundStart, *, share: float, largest: float, scale: float) -> Update:
        """The masked answer to a round, multiplied by the site's share, for the sites present.

        Args:
            start: The round, with the sites present and the attempt.
            share: Weight of this site in the sum.
            largest: Largest magnitude of a coordinate.
            scale: Integer steps per unit.

        Raises:
            InputError: If the site adds noise and was asked for this round before, or among too few
                sites: two answers would reveal more than the noise of one hides.
        """
        assert self.pairings is not None
        assert self._pending is not None
        round_, change = self._pending
        assert round_ == start.round
        integers = as_whole(change.astype(np.float64) * share, largest=largest, scale=scale)
        if self._settings.noise_of_sites:
            integers = integers + self._noise(start, len(change), scale)
        mask = self.pairings.mask(start.present, start.round, start.attempt, len(change))
        return Update(self.name, start.round, self._data.n_rows, (integers + mask,))

    def _noise(self, start: RoundStart, size: int, scale: float) -> np.ndarray:
        """This site's share of the noise among the sites present, once in every round."""
        privacy = self._settings.privacy
        honest = len(set(start.present)) - privacy.dishonest
        if start.round <= self._masked_round or honest < GROUP:
            raise InputError(
                f"site {self.name} gives its masked update once in a round, among {GROUP} honest "
                f"sites or more, and was asked again or among {honest}"
            )
        self._masked_round = start.round
        total = privacy.noise_multiplier * privacy.clip_norm
        deviation = scale * total / np.sqrt(honest)
        secret = self._noise_secret.tobytes()
        return noise_share(secret, start.round, size, deviation=deviation)

    def adopt(self, vector: Vector) -> None:
        """Adopts the common parameters; targets move by the same amount as their parameters."""
        state, received = self._state, self._layout.tree(vector)
        new_targets = {}
        for name, target in state.targets.items():
            same_structure = name in received and jax.tree.structure(target) == jax.tree.structure(
                received[name]
            )
            if same_structure:
                new_targets[name] = jax.tree.map(
                    lambda t, new, old: np.asarray(t) + (new - np.asarray(old)),
                    *jax.device_get((target, received[name], state.parameters[name])),
                )
        state = state.with_parameters(**received).with_targets(**new_targets)
        self._put(state)

    @property
    def settings(self) -> Federation:
        """The settings of the federation."""
        return self._settings

    @property
    def learner(self) -> Learner:
        """The learner that the site trains."""
        return self._learner

    @property
    def parameter_tree(self) -> dict[str, Any]:
        """The parameters by name."""
        return self._state.parameters

    @property
    def parameters(self) -> Vector:
        """The present parameters as one vector."""
        return flat(self._state.parameters)

    @property
    def policy(self) -> Policy:
        """The policy with the present parameters, as host arrays."""
        learner: Any = self._learner
        return learner.policy(jax.device_get(self._state))

    def snapshot(self) -> dict[str, Any]:
        """The state for a checkpoint, on the host; the data are not included."""
        noise = {"noise_secret": self._noise_secret} if self._settings.noise_of_sites else {}
        return {"state": jax.tree.map(np.array, jax.device_get(self._state)),
                "residual": self._residual.copy(), **noise}  # fmt: skip

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restores the result of :meth:`snapshot`."""
        self._put(snapshot["state"])
        self._residual = np.asarray(snapshot["residual"])
        self._noise_secret = np.asarray(snapshot.get("noise_secret", self._noise_secret))

    @property
    def _state(self) -> LearnerState:
        assert self._training is not None, "begin() must be called first"
        return self._training.learner

    def _initialise(self, updates: int) -> None:
        statistics = self._data.statistics_for(self._learner)
        state = self._learner.init(
            self._data.spec, statistics, self._initial, preparation=self._preparation
        )
        self._put(state.with_counters(updates=jnp.full_like(state.updates, updates)))

    def _put(self, state: LearnerState) -> None:
        # A chunk donates its training's buffers, so no two leaves may share one.
        self._training = Training(jax.device_put(state, self._device, may_alias=False), ())

    def _learner_of(self, centre: Vector) -> Any:
        mu = self._settings.federation.proximal
        if not mu:
            return self._arrays
        tree = jax.device_put(self._layout.tree(centre), self._device)
        return Proximal(self._arrays, tree, proximal_strength(self._arrays, tree, mu))


def proximal_strength(learner: Any, parameters: Mapping[str, Any], mu: float) -> dict[str, Any]:
    """Learning rate times ``mu`` of every parameter, by name.

    Raises:
        InputError: If the learner does not define which field is the learning rate of a parameter.
    """
    rates = getattr(learner, "rates", {})
    missing = [name for name in parameters if name not in rates]
    if missing:
        raise InputError(
            f"federation.proximal needs the learning rate of {missing[0]}, which "
            f"{type(learner).__name__}.rates does not name; leave federation.proximal at 0"
        )
    return {name: jnp.float32(mu) * getattr(learner, rates[name]) for name in parameters}


def named_clients(
    learner: Learner, sites: Mapping[str, TrainingData], settings: Federation, *, seed: int
) -> list[Client]:
    """One client per site, assigned to the devices in turn."""
    devices = jax.local_devices()
    return [
        Client(name, i, learner, data, settings, seed=seed, device=devices[i % len(devices)])
        for i, (name, data) in enumerate(sites.items())
    ]
