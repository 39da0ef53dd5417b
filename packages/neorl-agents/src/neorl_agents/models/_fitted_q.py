"""The return of a given policy, estimated from a log: fitted Q evaluation of mean or quantiles."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    UnitRows,
    only_batch,
    require,
)
from neorl_agents.networks import Network
from neorl_agents.sampling import Batch, BootstrappedEpisodes, Rows, Sampler, as_batch
from neorl_core import InputError, Policy, Spec, Transition
from neorl_core.control import follow
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean, quantile_huber_loss
from neorl_core.targets import td_target

# A policy's next action in every row of a log, given the logged actions at every step.


def actions_along(
    policy: Policy, obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """The policy's action for the next observation of every row.

    Its carry runs along each piece of the log and is given the logged action at every step, as in
    shadow mode, so a controller with memory acts from the situation that it would take over.

    Args:
        policy: Deterministic; stepped from a fresh carry at the start of every piece.
        obs: Observations in physical units, in order of time, shape ``(row, obs)``.
        action: Logged actions, shape ``(row, act)``.
        next_obs: Next observations, shape ``(row, obs)``.
        last: Whether a row is the last of its piece, shape ``(row,)``.

    Returns:
        Actions in physical units, shape ``(row, act)``, float64.
    """
    starts = np.append(True, np.asarray(last)[:-1])
    f32 = [np.asarray(x, np.float32) for x in (obs, action, next_obs)]
    return np.asarray(_along(policy, jnp.asarray(starts), *map(jnp.asarray, f32)), np.float64)


@jax.jit
def _along(policy: Policy, starts: Array, obs: Array, action: Array, next_obs: Array) -> Array:
    def step(carry: Any, row: tuple[Array, Array, Array, Array]) -> tuple[Any, Array]:
        start, obs_now, action_taken, obs_next = row
        fresh = policy.initial_carry()
        carry = jax.tree.map(lambda new, old: jnp.where(start, new, old), fresh, carry)
        carry, _ = policy(carry, obs_now, None)  # pyright: ignore[reportArgumentType]
        carry = follow(policy, carry, action_taken)
        return carry, policy(carry, obs_next, None)[1]  # pyright: ignore[reportArgumentType]

    return jax.lax.scan(step, policy.initial_carry(), (starts, obs, action, next_obs))[1]


HUBER_DELTA = 0.01
"""Error, in units of the rewards and costs, at which the loss of a quantile becomes linear. Below
it the loss is that of an expectile, so it must be small compared with the spread of the returns."""


class PolicyValue(NamedTuple):
    """Predicted return and costs of an action under the evaluated policy, in physical units.

    Attributes:
        reward: Discounted sum of the rewards, scalar; of every member, shape ``(member,)``.
        cost: Discounted sum of every cost, shape ``(cost,)``, of length zero if costs are not read;
            of every member, shape ``(member, cost)``.
    """

    reward: Float[Array, "*member"]
    cost: Float[Array, "*member cost"]


class ReturnQuantiles(NamedTuple):
    """Quantiles of the discounted return and costs of an action, in physical units.

    The ``n`` quantiles are those at the levels ``(i + 1/2) / n``, in increasing order, so that they
    are also ``n`` equally likely values of the return.

    Attributes:
        reward: Of the discounted sum of the rewards, shape ``(quantile,)``.
        cost: Of the discounted sum of every cost, shape ``(cost, quantile)``.
    """

    reward: Float[Array, " quantile"]
    cost: Float[Array, "cost quantile"]


class FittedQEvaluation(BaseLearner):
    """The action values of one policy, regressed on the rows of a log.

    ``mean over rows of sum_k (Q_k(s, a) - (x_k + discount (1 - terminated) Q'_k(s', pi(s'))))^2``

    with ``x_k`` the reward and, with ``evaluates_costs``, every cost. The policy enters only
    through the column ``next_action``: :func:`with_next_actions` adds it to rows, for a policy or
    for the behaviour of the log. ``Q'`` follows ``Q`` by ``tau``.

    With ``quantiles = n``, it is the distributional form: the network gives ``n`` quantiles
    ``Z_k,i`` of each discounted sum and learns them by quantile regression on the ``n`` equally
    likely targets ``x_k + discount (1 - terminated) Z'_k,j(s', pi(s'))``. The distribution is that
    of one episode: it includes the randomness of the plant after the action, and no error of the
    fit. Its mean is :meth:`value`.

    With ``members = m`` above one, it is an ensemble: ``m`` networks with independent initial
    weights, each on a bootstrap of the log's episodes, are trained in one program. Each regresses
    on a target network of its own. On a common target, all would learn the same values, and the
    members would differ only by the error of the last regression; on their own, the error that a
    member makes is carried from step to step in its own values, so that the spread between members
    shows the error of the whole sum. :meth:`member_values` gives the values of all, :meth:`value`
    their mean. The spread covers the initial weights and the choice of the log's episodes, but not
    an error that all members share, such as the same extrapolation.

    It is a learner without a policy, so it is trained, resumed and tracked like any other, and
    streamed unless it is an ensemble. The accuracy depends on how well the log covers the policy's
    actions: for actions that are not in the log, ``Q(s', pi(s'))`` is an extrapolation, and only
    the spread between members hints at its error.

    Attributes:
        discount: Discount of rewards and costs per step.
        tau: Fraction by which the target moves.
        learning_rate: Learning rate.
        evaluates_costs: Whether costs are evaluated too, and the reward is the logged one; static.
        quantiles: Number of quantiles of every discounted sum; 0 for the mean alone; static.
        members: Number of networks; with more than one, the rows must mark where episodes end;
            static.

    Source: Le, Voloshin and Yue, Batch policy learning under constraints, arXiv 1903.08738,
    algorithm 3; with a slowly moving target instead of solving for each target anew. Quantiles:
    Dabney, Rowland, Bellemare and Munos, Distributional reinforcement learning with quantile
    regression, arXiv 1710.10044, algorithm 1, for a given policy. Bootstrap of episodes: Hao, Ji,
    Duan, Lu, Szepesvari and Wang, Bootstrapping fitted Q-evaluation for off-policy inference, arXiv
    2102.03607; with few members and independent Poisson weights in place of many resamples. Targets
    of each member: Ghasemipour, Gu and Nachum, Why so pessimistic? Estimating uncertainties for
    offline RL through ensembles, and why their independence matters, arXiv 2205.13703.
    """

    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    learning_rate: float = setting(3e-4, above=0)
    evaluates_costs: bool = eqx.field(static=True, default=False)
    quantiles: int = setting(0, low=0, static=True)
    members: int = setting(1, low=1, static=True)

    rates: ClassVar[Mapping[str, str]] = {"values": "learning_rate"}

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The fields that are read, including ``cost`` if costs are evaluated."""
        always = ("obs", "action", "reward", "next_obs", "next_action", "terminated", "mask")
        return (*always, *["cost"] * self.evaluates_costs)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that are read, and for an ensemble those that end episodes."""
        return (*self.reads, *["truncated"] * (self.members > 1))

    @property
    def row_sampler(self) -> Sampler:
        """Single rows; for an ensemble with the weights of its bootstrap."""
        return BootstrappedEpisodes(self.members) if self.members > 1 else Rows()

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""
        no_encoder = self.networks.encoder == "none"
        require(self, "networks.encoder", no_encoder, "'none'")

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Networks with outputs for the reward and for every cost, and a target for each."""
        outputs = (1 + spec.n_cost * self.evaluates_costs) * max(self.quantiles, 1)
        values = self.networks.obs_action_networks(
            spec, outputs, key, members=self.members, last_bound=1e-2
        )
        return {"values": values}, {"values": values}

    def update(
        self, state: LearnerState, batch: Transition | Batch, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step on rows whose next action is known where a record ended too."""
        drawn = as_batch(batch)
        return super().update(state, drawn._replace(rows=drawn.rows._replace(truncated=None)), key)

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step; the key is ignored."""
        rows, maps = only_batch(rows), state.preparation
        # This adds the offset that learners of policies subtract: a value refers to the log's
        # rewards.
        remaining = jnp.where(self.discount < 1, 1 - self.discount, 1)
        steps_left = jnp.where(rows.terminated, 1 / remaining, 1)
        reward = (rows.reward + steps_left * maps.reward_offset / maps.reward_unit)[:, None]
        signals = jnp.concatenate([reward, *[rows.cost] * self.evaluates_costs], axis=-1)
        following = _values(state.targets["values"], rows.next_obs, rows.next_action)
        following = following.reshape(self.members, *signals.shape, max(self.quantiles, 1))
        target = td_target(
            jnp.broadcast_to(signals[..., None], following.shape),
            following,
            jnp.broadcast_to(rows.terminated[:, None, None], following.shape),
            discount=self.discount,
        )
        if self.quantiles:
            state, loss, value = self.descend(state, "values", _quantile_loss, rows, target)
        else:
            state, loss, value = self.descend(state, "values", _loss, rows, target[..., 0])
        return state.with_averaged_targets("values", tau=self.tau), {
            "loss": loss / self.members,
            "q": value * maps.reward_unit,
        }

    def value(
        self, state: LearnerState, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> PolicyValue:
        """The value of an action, after which the policy acts; the mean of all members.

        Args:
            state: State of this learner.
            obs: One observation, physical units; use ``vmap`` for batches.
            action: The action, physical units; the policy's own gives the value of the state.
        """
        return jax.tree.map(partial(jnp.mean, axis=0), self.member_values(state, obs, action))

    def member_values(
        self, state: LearnerState, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> PolicyValue:
        """The value of an action according to each member, with a leading axis of members.

        Args:
            state: State of this learner.
            obs: One observation, physical units; use ``vmap`` for batches.
            action: The action, physical units.
        """
        scaled = self._scaled(state, obs, action)
        scaled = jnp.mean(scaled.reshape(self.members, -1, max(self.quantiles, 1)), axis=-1)
        costs = scaled[:, 1:] * state.preparation.cost_unit[None, : scaled.shape[1] - 1]
        return PolicyValue(scaled[:, 0] * state.preparation.reward_unit, costs)

    def return_quantiles(
        self, state: LearnerState, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> ReturnQuantiles:
        """The distribution of the return after an action, after which the policy acts.

        The quantiles of an ensemble are the means of those of its members.

        Args:
            state: State of this learner.
            obs: One observation, physical units; use ``vmap`` for batches.
            action: The action, physical units.

        Raises:
            ValueError: If the learner has no quantiles.
        """
        require(self, "quantiles", self.quantiles > 0, "above 0 for the distribution of the return")
        scaled = self._scaled(state, obs, action).reshape(self.members, -1, self.quantiles)
        scaled = jnp.mean(jnp.sort(scaled, axis=-1), axis=0)  # The outputs of a network may cross.
        costs = scaled[1:] * state.preparation.cost_unit[: len(scaled) - 1, None]
        return ReturnQuantiles(scaled[0] * state.preparation.reward_unit, costs)

    def _scaled(self, state: LearnerState, obs: Array, action: Array) -> Float[Array, "member out"]:
        """The outputs of the networks for one observation and action in physical units."""
        maps = state.preparation
        scaled_action = jnp.clip(maps.action.to_scaled(action), -1, 1)
        network, scaled_obs = state.parameters["values"], maps.obs.to_scaled(obs)
        return _values(network, scaled_obs[None], scaled_action[None])[:, 0]


def with_next_actions(rows: Transition, policy: Policy | None = None) -> Transition:
    """The rows of a log with the next action of a policy, for :class:`FittedQEvaluation`.

    Args:
        rows: Rows in the order of the log, host arrays in physical units, with ``next_obs``,
            ``terminated`` and ``truncated``.
        policy: Deterministic; a policy with memory is run along every episode and is given the
            logged actions. Without a policy the log's own next actions are used, which evaluates
            the behaviour; the last row of a truncated episode is then masked, since its next action
            is unknown.

    Returns:
        The rows, on the host. The next action is known in truncated rows too.

    Raises:
        InputError: If the log lacks one of these columns, or no row is left.

    Example:
        >>> import numpy as np
        >>> from neorl_core import Transition
        >>> from neorl_core.control import ConstantPolicy
        >>> level, ends = np.ones((3, 1), np.float32), np.array([False, False, True])
        >>> rows = Transition(level, level, ends * 1.0, next_obs=level, next_action=level,
        ...     terminated=ends & False, truncated=ends)
        >>> with_next_actions(rows, ConstantPolicy(np.array([2.0]))).next_action.tolist()
        [[2.0], [2.0], [2.0]]
        >>> with_next_actions(rows).mask.tolist()
        [True, True, False]
    """
    for name in ("next_obs", "terminated", "truncated"):
        if getattr(rows, name) is None:
            raise InputError(f"column {name} of the log is missing; fitted Q evaluation needs it")
    ends = np.asarray(rows.terminated) | np.asarray(rows.truncated)
    ends[-1:] = True
    valid = np.ones(len(ends), bool)
    if rows.mask is not None:
        valid = np.asarray(rows.mask, bool)
        ends = ends | ~valid | ~np.append(valid[1:], True)
    if policy is None:
        unknown = ends & ~np.asarray(rows.terminated)
        next_actions = np.where(ends[:, None], 0, np.roll(np.asarray(rows.action), -1, axis=0))
        valid = valid & ~unknown
        if not valid.any():
            raise InputError(
                "fitted Q evaluation needs rows with a next row in the same episode, but the log "
                "has none; record episodes of at least two rows"
            )
        return rows._replace(next_action=next_actions, mask=valid)
    columns = [np.asarray(x) for x in (rows.obs, rows.action, rows.next_obs)]
    policy_actions = actions_along(policy, *columns, last=ends).astype(columns[1].dtype)
    return rows._replace(next_action=policy_actions)


def _values(
    members: Network, obs: Float[Array, "batch obs"], action: Float[Array, "batch act"]
) -> Float[Array, "member batch out"]:
    inputs = jnp.concatenate([obs, action], axis=-1)
    return jax.vmap(_output, in_axes=(0, None))(members, inputs)


def _output(network: Network, inputs: Float[Array, "batch in"]) -> Float[Array, "batch out"]:
    return network(inputs)


def _loss(
    members: Network, rows: UnitRows, target: Float[Array, "member batch out"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    values = _values(members, rows.obs, rows.action)
    errors = jnp.sum(jnp.square(values - target), axis=-1)
    return _sum_of_means(errors, rows), masked_mean(jnp.mean(values[..., 0], axis=0), rows.mask)


def _quantile_loss(
    members: Network, rows: UnitRows, target: Float[Array, "member batch signal quantile"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    values = _values(members, rows.obs, rows.action).reshape(target.shape)
    count = target.shape[-1]
    levels = (jnp.arange(count) + 0.5) / count
    of_signal = jax.vmap(partial(quantile_huber_loss, quantile=levels, delta=HUBER_DELTA))
    errors = jnp.sum(jax.vmap(jax.vmap(of_signal))(values, target), axis=-1) / count
    mean = jnp.mean(values[:, :, 0], axis=(0, -1))
    return _sum_of_means(errors, rows), masked_mean(mean, rows.mask)


def _sum_of_means(errors: Float[Array, "member batch"], rows: UnitRows) -> Float[Array, ""]:
    """The sum over members of each one's mean over rows, weighted by its own bootstrap."""
    weighted = errors if rows.weight is None else errors * rows.weight.T
    return masked_mean(jnp.sum(weighted, axis=0), rows.mask)
