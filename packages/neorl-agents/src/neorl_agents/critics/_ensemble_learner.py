"""Members trained on bootstrapped episodes, each with a fixed prior function."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.critics._columns import Columns, checked_columns
from neorl_agents.critics._ensemble import Ensemble, Target, scaled_outputs
from neorl_agents.learning import (
    WHOLE_RUN,
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    cosine,
    require,
    require_choice,
    require_count,
    require_number,
)
from neorl_agents.learning._state import UPDATES
from neorl_agents.networks import MLP, ensemble
from neorl_agents.policies import Preparation
from neorl_agents.sampling import bootstrap_weights
from neorl_core import Affine, DataStatistics, Spec, Transition
from neorl_core.replay import batch_indices


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
        prior_scale: Factor of the fixed prior functions, not negative; 0 is a plain ensemble.
        learning_rate: Learning rate at the start; it falls to zero along half a cosine.
        decay_updates: Updates over which the rate falls; -1 for the length of the run, 0 for never.
        outcome_mean: Subtracted from every predicted channel; zero if not given.
        outcome_scale: Divisor of the result; if not given, the standard deviation of the
            observations, or half the range of the actions.
        target: ``"dynamics"`` or ``"behaviour"``; static.
        members: Number of members, two or more; static.

    Source: Osband, Aslanides and Cassirer, Randomized prior functions for deep reinforcement
    learning, arXiv 1806.03335.
    """

    prior_scale: float = 1.0
    learning_rate: float = 1e-3
    decay_updates: int = WHOLE_RUN
    outcome_mean: tuple[float, ...] = ()
    outcome_scale: tuple[float, ...] = ()
    target: Target = eqx.field(static=True, default="dynamics")
    members: int = eqx.field(static=True, default=10)
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
        """Raises a ``ValueError`` that names the first hyperparameter with a bad value."""
        require_number(self, "prior_scale", low=0)
        require_count(self, "members", least=2)
        require_count(self, "decay_updates", least=WHOLE_RUN)
        require_choice(self, "target", ("dynamics", "behaviour"))
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
