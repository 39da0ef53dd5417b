"""An ensemble of networks whose disagreement shows where the log has no data, and its training."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.critics._log_rows import Columns, checked_columns
from neorl_agents.learning import (
    WHOLE_RUN,
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    cosine,
    require,
)
from neorl_agents.learning._state import UPDATES
from neorl_agents.networks import MLP, ensemble
from neorl_agents.policies import Preparation
from neorl_agents.sampling import bootstrap_weights
from neorl_core import Affine, DataStatistics, Spec, Transition
from neorl_core.infrastructure import setting
from neorl_core.replay import batch_indices

# An ensemble of networks whose disagreement shows where the log has no data.


Target = Literal["dynamics", "behaviour"]
"""What the members of an ensemble predict; see :class:`Ensemble`."""


class Ensemble(eqx.Module):
    """Members with independent initial weights, each with a prior function that is not trained.

    Member ``m`` predicts ``f_m(x) + prior_scale p_m(x)``. Where data determine the sum, members
    agree; elsewhere the priors differ. A ``"dynamics"`` ensemble predicts the change of the
    observation from observation and action, a ``"behaviour"`` ensemble the action from the
    observation.

    Attributes:
        obs: Map that standardises observations.
        action: Map from the range of every action channel to [-1, 1].
        members: Stacked networks.
        priors: Stacked fixed networks.
        prior_scale: Factor of the priors, scalar.
        outputs: Map from predictions in physical units to those of the networks.
        typical: Root mean square over rows of the log of the members' standard deviation, in the
            units of the networks, shape ``(out,)``.
        noise: Standard deviation of the residuals beyond the members' disagreement, physical
            units, shape ``(out,)``.
        spread: Factor of the members' standard deviation, shape ``(out,)``.
        width: Half-width of an interval in standard deviations, shape ``(out,)``; NaN if no
            interval was calibrated.
        target: Name of what is predicted; static.
    """

    obs: Affine
    action: Affine
    members: MLP
    priors: MLP
    prior_scale: Float[Array, ""]
    outputs: Affine
    typical: Float[Array, " out"]
    noise: Float[Array, " out"]
    spread: Float[Array, " out"]
    width: Float[Array, " out"]
    target: Target = eqx.field(static=True)


class Prediction(NamedTuple):
    """Prediction of an ensemble for one observation and action, in physical units.

    Attributes:
        mean: Mean of the members, shape ``(out,)``.
        deviation: ``sqrt(noise^2 + (spread std)^2)`` with the standard deviation over the members.
        low: Lower end of the interval of the stated coverage; NaN if none was calibrated.
        high: Upper end.
    """

    mean: Float[Array, " out"]
    deviation: Float[Array, " out"]
    low: Float[Array, " out"]
    high: Float[Array, " out"]


def disagreement(
    ensemble: Ensemble, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, ""]:
    """Disagreement of the members, relative to the log: ``sqrt(mean_k (std_k / typical_k)^2)``.

    A value of 1 is typical of held-out rows. Every output is divided by its own ``typical``, so an
    output that is unpredictable anyway does not mask the others. The function has the signature
    that ``neorl_safety.monitoring.CriticMonitor`` requires of its ``apply``; the monitor sets its
    threshold on episodes not used here, with a guaranteed rate of false alarms.

    Args:
        ensemble: A fitted ensemble.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units; ignored by a behaviour ensemble.

    Returns:
        A scalar, larger for less familiar inputs; NaN if an input is NaN.
    """
    std = jnp.std(member_outputs(ensemble, obs, action), axis=0)
    return jnp.sqrt(jnp.mean(jnp.square(std / ensemble.typical)))


def predicted(
    ensemble: Ensemble, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Prediction:
    """Mean, calibrated standard deviation and interval of an ensemble's prediction.

    The interval contains one step of a new episode with at least the coverage that it was fitted
    for, on average over exchangeable episodes. There is no guarantee for other data, although the
    standard deviation grows there.

    Args:
        ensemble: A fitted ensemble.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units.

    Returns:
        Prediction of the observation's change, or of the behaviour's action.
    """
    outputs = member_outputs(ensemble, obs, action)
    mean = ensemble.outputs.to_physical(jnp.mean(outputs, axis=0))
    std = jnp.std(outputs, axis=0) * ensemble.outputs.scale
    deviation = jnp.sqrt(jnp.square(ensemble.noise) + jnp.square(ensemble.spread * std))
    half = ensemble.width * deviation
    return Prediction(mean, deviation, mean - half, mean + half)


def member_outputs(
    ensemble: Ensemble, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, "ens out"]:
    """Output of every member, in the units of the networks."""
    inputs = ensemble.obs.to_scaled(obs)
    if ensemble.target != "behaviour":
        inputs = jnp.concatenate([inputs, ensemble.action.to_scaled(action)])
    return scaled_outputs(ensemble.members, ensemble.priors, ensemble.prior_scale, inputs)


def scaled_outputs(
    members: MLP, priors: MLP, prior_scale: Array, inputs: Float[Array, "*batch in"]
) -> Float[Array, "ens *batch out"]:
    """Output of every member for scaled inputs."""
    outputs = jax.vmap(_member_output, in_axes=(0, None))(members, inputs)
    return outputs + prior_scale * jax.vmap(_member_output, in_axes=(0, None))(priors, inputs)


def _member_output(network: MLP, inputs: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
    return network(inputs)


# Members trained on bootstrapped episodes, each with a fixed prior function.


class EnsembleRows(NamedTuple):
    """Regression targets of the members in physical units, one entry per row.

    Attributes:
        obs: Observations.
        action: Actions.
        outcome: Regression targets.
        weight: Weight of the row for each member; in tables, the index of its episode.
    """

    obs: Float[Array, "*row obs"]
    action: Float[Array, "*row act"]
    outcome: Float[Array, "*row out"]
    weight: Float[Array, "*row ens"] | Int[Array, " row"]


class EnsembleTables(NamedTuple):
    """The rows, and an entry for every episode.

    Attributes:
        rows: The unmasked rows.
        episodes: Zeros, one per episode.
    """

    rows: EnsembleRows
    episodes: Int[Array, " episode"]


@dataclasses.dataclass(frozen=True)
class BootstrappedRows:
    """Uniformly sampled rows; every member weights each episode by a Poisson number.

    The weights of a training depend only on its key, so they are the same in every chunk and differ
    between seeds.

    Attributes:
        members: Number of members.
    """

    members: int

    def tables(self, rows: Transition) -> Any:
        """Not implemented, because only the learner knows its regression targets."""
        raise NotImplementedError("call EnsembleLearner.log_tables, which makes these tables")

    def draw(
        self,
        tables: EnsembleTables,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> EnsembleRows:
        """One batch, leading axes ``shape``."""
        size = shape[0] * shape[1]
        indices = batch_indices(key, number, n=len(tables.rows.obs), batch=size).reshape(shape)
        rows = jax.tree.map(lambda column: column[indices], tables.rows)
        weights = bootstrap_weights(key, len(tables.episodes), self.members)
        return rows._replace(weight=weights[rows.weight])


class EnsembleLearner(BaseLearner):
    """Members of an :class:`Ensemble`, each regressed on the log with its prior function added.

    ``sum_m mean over rows of w_m (f_m(x) + prior_scale p_m(x) - y)^2``

    where ``w_m`` is the weight of the row's episode for member ``m``, sampled from a Poisson
    distribution (the bootstrap), and ``p_m`` is a network that is never trained.

    It is a learner without a policy, which the common loop trains, resumes and tracks.
    :meth:`ensemble` gives the ensemble of a state; :func:`fit_ensemble` trains and calibrates one.

    Attributes:
        prior_scale: Factor of the fixed prior functions; 0 is a plain ensemble.
        learning_rate: Learning rate at the start; it falls to zero along half a cosine.
        decay_updates: Updates over which the rate falls; -1 for the length of the run, 0 for never.
        outcome_mean: Subtracted from every predicted channel; zero if not given.
        outcome_scale: Divisor of the result; if not given, the standard deviation of the
            observations, or half the range of the actions.
        target: ``"dynamics"`` or ``"behaviour"``; static.
        members: Number of members; static.

    Source: Osband, Aslanides and Cassirer, Randomized prior functions for deep reinforcement
    learning, arXiv 1806.03335.
    """

    prior_scale: float = setting(1.0, low=0)
    learning_rate: float = setting(1e-3, above=0)
    decay_updates: int = setting(WHOLE_RUN, low=WHOLE_RUN)
    outcome_mean: tuple[float, ...] = ()
    outcome_scale: tuple[float, ...] = ()
    target: Target = eqx.field(static=True, default="dynamics")
    members: int = setting(10, low=2, static=True)
    networks: Networks = Networks(hidden=(64, 64))

    rates: ClassVar[Mapping[str, str]] = {"members": "learning_rate"}
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)
    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "next_obs", "terminated", "truncated", "mask"
    )  # fmt: skip

    @property
    def sampler(self) -> Any:
        """A uniform sampler with the bootstrap of every member."""
        return BootstrappedRows(self.members)

    def check(self) -> None:
        """Refuses networks that the members cannot have."""
        require(self, "networks.encoder", self.networks.encoder == "none", "'none'")
        require(self, "networks.kind", self.networks.kind == "mlp", "'mlp'")

    def log_tables(self, spec: Spec, rows: Transition) -> EnsembleTables:
        """The rows, the regression targets, and the index of each row's episode.

        Raises:
            InputError: If a column is missing or malformed.
        """
        columns = checked_columns(rows, spec, cost=False)
        episodes, episode_index = np.unique(columns.episode, return_inverse=True)
        # The change is computed in float64, which keeps the digits of a narrow band far from zero.
        trained = (columns.obs, columns.action, outcome(columns, self.target))
        entries: Any = [*(x.astype(np.float32) for x in trained), episode_index.astype(np.int32)]
        episode_axis: Any = np.zeros(len(episodes), np.int32)
        return EnsembleTables(EnsembleRows(*entries), episode_axis)

    def init(
        self,
        spec: Spec,
        statistics: DataStatistics,
        key: PRNGKeyArray,
        *,
        preparation: Preparation | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> LearnerState:
        """A fresh state, with the prior functions in its context."""
        self.validate()
        member_key, prior_key = jax.random.split(key)
        context = {**(context or {}), "priors": self.fresh(spec, prior_key)[0]["members"]}
        return super().init(spec, statistics, member_key, preparation=preparation, context=context)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Members with independent weights."""

        def member(member_key: PRNGKeyArray) -> Any:
            if self.target == "behaviour":
                return self.networks.obs_network(spec, spec.n_action, member_key)
            return self.networks.obs_network(
                spec, spec.n_obs, member_key, extra_inputs=spec.n_action
            )

        return {"members": ensemble(self.members, member, key)}, {}

    def update(
        self, state: LearnerState, batch: EnsembleRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of all members; the key is ignored."""
        rows, maps = jax.tree.map(lambda x: x[0], batch), state.preparation
        inputs = maps.obs.to_scaled(rows.obs)
        if self.target != "behaviour":
            inputs = jnp.concatenate([inputs, maps.action.to_scaled(rows.action)], axis=-1)
        targets = self.outputs(maps).to_scaled(rows.outcome)
        rate = self.learning_rate * cosine(state.updates, self.decay_updates)
        data = (state.context["priors"], self.prior_scale, inputs, targets, rows.weight.T)
        state, loss, disagreement = self.descend(state, "members", _loss, *data, rate=rate)
        metrics = {"loss": loss, "disagreement": disagreement}
        return state.with_counters(**{UPDATES: state.updates + 1}), metrics

    def ensemble(self, state: LearnerState) -> Ensemble:
        """The ensemble of a state, without an interval; its disagreement is not yet scaled."""
        maps = state.preparation
        outputs = self.outputs(maps)
        one = jnp.ones_like(outputs.scale)
        return Ensemble(
            obs=maps.obs,
            action=maps.action,
            members=state.parameters["members"],
            priors=state.context["priors"],
            prior_scale=jnp.asarray(self.prior_scale, jnp.float32),
            outputs=outputs,
            typical=one,
            noise=jnp.zeros_like(one),
            spread=one,
            width=jnp.full_like(one, jnp.nan),
            target=self.target,
        )

    def outputs(self, maps: Preparation) -> Affine:
        """The map from regression targets, in physical units, to the outputs of the networks."""
        change = Affine(jnp.zeros_like(maps.obs.scale), maps.obs.scale)
        default = maps.action if self.target == "behaviour" else change
        return Affine(
            _stack(self.outcome_mean, default.offset), _stack(self.outcome_scale, default.scale)
        )


def outcome(columns: Columns, target: Target) -> np.ndarray:
    """Logged values of the ensemble's target, shape ``(row, out)``."""
    return columns.action if target == "behaviour" else columns.next_obs - columns.obs


def _stack(numbers: tuple[Any, ...], default: Array) -> Array:
    if len(numbers) == 0:
        return default
    return jnp.stack([jnp.asarray(x, jnp.float32) for x in numbers])


def _loss(
    members: MLP, priors: MLP, prior_scale: Array, inputs: Array, targets: Array, weights: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    predictions = scaled_outputs(members, priors, prior_scale, inputs)
    errors = jnp.mean(jnp.square(predictions - targets[None]), axis=2)
    disagreement = jnp.sqrt(jnp.mean(jnp.var(predictions, axis=0)))
    return jnp.sum(jnp.mean(weights * errors, axis=1)), disagreement
