"""Safety critics: the risk for every limit, by fixed-horizon temporal differences."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.calibration import MonotoneMap, identity_map
from neorl_agents.critics._log_rows import (
    Columns,
    checked_columns,
    counted_steps,
    limit_facts,
    window_sums,
)
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
from neorl_agents.networks import MLP
from neorl_agents.policies import Preparation
from neorl_agents.sampling._histories import finite_column, row_flags
from neorl_core import Affine, Spec, Transition
from neorl_core.infrastructure import setting

# Safety critics: the risk for every limit, given an observation and a proposed action.


Quantity = Literal["violation", "cost"]
"""What a safety critic predicts; see :class:`SafetyCritic`."""

LEAST_HAZARD = 1e-7
"""Added to a cumulative hazard, so that the logarithm of a probability stays finite."""


class SafetyCritic(eqx.Module):
    """Members that see an observation and an action, with one head per limit and step ahead.

    For ``"violation"``, head ``j`` of a limit is the probability that one of the next ``j`` steps
    counts against it, ``P_j = 1 - exp(-sum_{i <= j} softplus(z_i))``, which grows with the horizon.
    For ``"cost"`` it is the expected cost of the next ``j`` steps, ``sum_{i <= j} z_i``, in units
    of ``scale``. The first step is that of the action itself. The members are averaged.

    Attributes:
        obs: Map that standardises observations.
        action: Map from the range of every action channel to [-1, 1].
        members: Stacked networks with ``cost * horizon`` outputs.
        shift: Added to the outputs of every limit, shape ``(cost,)``.
        scale: Cost of one unit of the heads, shape ``(cost,)``; 1 for probabilities.
        calibration: Map from the last head of every limit to the outcomes of held-out episodes.
        quantity: ``"violation"`` or ``"cost"``; static.
        horizon: Number of heads, the last of which covers that many steps; static.
    """

    obs: Affine
    action: Affine
    members: MLP
    shift: Float[Array, " cost"]
    scale: Float[Array, " cost"]
    calibration: MonotoneMap
    quantity: Quantity = eqx.field(static=True)
    horizon: int = eqx.field(static=True)


def horizon_curve(
    critic: SafetyCritic, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, "cost horizon"]:
    """The prediction of every head, before calibration.

    Args:
        critic: A fitted critic.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units.

    Returns:
        Probabilities, or costs in their units, for 1, 2, ... steps; NaN if an input is NaN.
    """
    inputs = jnp.concatenate([critic.obs.to_scaled(obs), critic.action.to_scaled(action)])
    heads = jax.vmap(raw_heads, in_axes=(0, None, None))(critic.members, inputs, critic.shift)
    return jnp.mean(predictions(heads, critic.quantity), axis=0) * critic.scale[:, None]


def limit_risks(
    critic: SafetyCritic, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, " cost"]:
    """The calibrated prediction for the complete horizon, one number per limit.

    Args:
        critic: A fitted critic.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units.

    Returns:
        Probabilities, or costs in their units; NaN if an input is NaN.
    """
    return critic.calibration(horizon_curve(critic, obs, action)[:, -1])


def largest_risk(
    critic: SafetyCritic, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, ""]:
    """The largest of :func:`limit_risks`, in units of ``scale``, for a monitor.

    It has the signature that ``neorl_safety.monitoring.CriticMonitor`` requires of its ``apply``.

    Args:
        critic: A fitted critic.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units.

    Returns:
        A scalar, larger for a higher risk; NaN if an input is NaN.
    """
    return jnp.max(limit_risks(critic, obs, action) / critic.scale)


def raw_heads(
    network: MLP, inputs: Float[Array, "*batch in"], shift: Float[Array, " cost"]
) -> Float[Array, "*batch cost horizon"]:
    """The outputs of one member, by limit and step ahead."""
    outputs = network(inputs)
    heads = outputs.reshape(*outputs.shape[:-1], shift.shape[0], -1)
    return heads + shift.reshape((1,) * (heads.ndim - 2) + (-1, 1))


def predictions(heads: Float[Array, "*batch horizon"], quantity: Quantity) -> Array:
    """The predictions of raw heads for 1, 2, ... steps."""
    if quantity == "cost":
        return jnp.cumsum(heads, axis=-1)
    return -jnp.expm1(-cumulative_hazard(heads))


def cumulative_hazard(heads: Float[Array, "*batch horizon"]) -> Float[Array, "*batch horizon"]:
    """The negated logarithm of the probability that nothing has happened yet."""
    return jnp.cumsum(jax.nn.softplus(heads), axis=-1) + LEAST_HAZARD


# Fixed-horizon temporal differences: head h bootstraps from head h - 1.


RATES = (1e-4, 0.9)
"""Range of event rates for the initial outputs of a network."""


class HorizonRows(NamedTuple):
    """Training rows of the heads, one entry per row; observations and actions in physical units.

    Attributes:
        obs: Observations.
        action: Actions.
        next_obs: The following observations.
        next_action: The actions taken there.
        counted: Whether the step counts against each limit, as 0 or 1, or its cost.
        follows: Whether the plant went on.
        known: Whether the heads beyond the first have a target, for each limit.
        weight: Importance weight of the row under the sampling, mean 1.
    """

    obs: Float[Array, "*row obs"]
    action: Float[Array, "*row act"]
    next_obs: Float[Array, "*row obs"]
    next_action: Float[Array, "*row act"]
    counted: Float[Array, "*row cost"]
    follows: Bool[Array, " *row"]
    known: Bool[Array, "*row cost"]
    weight: Float[Array, " *row"]


class HorizonTables(NamedTuple):
    """Rows, and the ones sampled more often: those ahead of a violation of each limit.

    Attributes:
        rows: All unmasked rows.
        ahead: Indices of the rows ahead of a violation, limit after limit.
        start: First entry of each limit in ``ahead``, shape ``(limit,)``.
        count: Number of entries, shape ``(limit,)``; without a limit, sampling is uniform.
    """

    rows: HorizonRows
    ahead: Int[Array, " entry"]
    start: Int[Array, " limit"]
    count: Int[Array, " limit"]


@dataclasses.dataclass(frozen=True)
class RowsBeforeViolations:
    """Samples rows uniformly or, with probability a half, ahead of a violation of some limit."""

    def tables(self, rows: Transition) -> Any:
        """Not implemented, because only the learner knows the limits."""
        raise NotImplementedError("call SafetyCriticLearner.log_tables, which makes these tables")

    def draw(
        self,
        tables: HorizonTables,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> HorizonRows:
        """One batch, leading axes ``shape``."""
        size = shape[0] * shape[1]
        row_indices = self.numbers(tables, size, jax.random.fold_in(key, number)).reshape(shape)
        return jax.tree.map(lambda column: column[row_indices], tables.rows)

    def numbers(self, tables: HorizonTables, size: int, key: PRNGKeyArray) -> Int[Array, " size"]:
        """Samples row indices."""
        keys = jax.random.split(key, 4)
        uniform_rows = jax.random.randint(keys[0], (size,), 0, len(tables.rows.weight))
        if len(tables.count) == 0:
            return uniform_rows
        limit = jax.random.randint(keys[1], (size,), 0, len(tables.count))
        group_size = tables.count[limit]
        position = jax.random.uniform(keys[2], (size,)) * group_size.astype(jnp.float32)
        # Without the minimum, a product rounded up to the count would index the next limit's rows.
        index = jnp.minimum(position.astype(jnp.int32), group_size - 1)
        violation_rows = tables.ahead[tables.start[limit] + index]
        return jnp.where(jax.random.bernoulli(keys[3], shape=(size,)), violation_rows, uniform_rows)


class SafetyCriticLearner(BaseLearner):
    """The risk for every limit within the next steps, by fitted Q evaluation of a fixed horizon.

    All heads are regressed on :func:`horizon_targets`, by cross-entropy or, for costs, by squared
    errors. Half of a batch is sampled from the rows ahead of a violation, with importance weights
    that preserve the expectation. A terminated row has no continuation. A truncated row bootstraps
    if its next action is known: for ``evaluates="policy"`` always, from the column ``next_action``;
    for the behaviour of the log only its first head is trained.

    It is a learner without a policy, which the common loop trains, resumes and tracks.
    :meth:`critic` gives the critic of a state; :func:`fit_safety_critic` trains and calibrates one.

    Attributes:
        discount: Discount of costs per step; 1 for probabilities.
        tau: Fraction by which the target networks move.
        learning_rate: Learning rate at the start; it falls to zero along half a cosine.
        decay_updates: Updates over which the rate falls; -1 for the length of the run, 0 for never.
        first_values: Initial prediction per step for each limit: a fraction of steps, or a mean
            cost; if not given, a half, or zero for costs.
        quantity: ``"violation"`` or ``"cost"``; static.
        evaluates: ``"behaviour"`` of the log, or the ``"policy"`` of the column ``next_action``;
            static.
        horizon: Steps ahead; static.
        members: Number of networks to average; static.

    Source: Le, Voloshin and Yue, Batch policy learning under constraints, arXiv 1903.08738; De
    Asis et al., Fixed-horizon temporal difference methods for stable reinforcement learning, arXiv
    1909.03906.
    """

    discount: float = setting(1.0, low=0, high=1)  # pyright: ignore[reportIncompatibleVariableOverride]
    tau: float = setting(0.02, above=0, high=1)
    learning_rate: float = setting(1e-3, above=0)
    decay_updates: int = setting(WHOLE_RUN, low=WHOLE_RUN)
    first_values: tuple[float, ...] = ()
    quantity: Quantity = eqx.field(static=True, default="violation")
    evaluates: Literal["behaviour", "policy"] = eqx.field(static=True, default="behaviour")
    horizon: int = setting(20, low=1, static=True)
    members: int = setting(3, low=1, static=True)
    networks: Networks = Networks(hidden=(64, 64))

    rates: ClassVar[Mapping[str, str]] = {"members": "learning_rate"}
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The fields that are read, including ``next_action`` if a policy is evaluated."""
        always = ("obs", "action", "cost", "next_obs", "terminated", "truncated", "mask")
        return (*always, *["next_action"] * (self.evaluates == "policy"))

    @property
    def sampler(self) -> Any:
        """A sampler that takes half of the rows from those ahead of a violation."""
        return RowsBeforeViolations()

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""
        if self.quantity == "violation":
            require(self, "discount", self.discount == 1, "1 if quantity is 'violation'")
        require(self, "networks.encoder", self.networks.encoder == "none", "'none'")
        require(self, "networks.kind", self.networks.kind == "mlp", "'mlp'")

    def log_tables(self, spec: Spec, rows: Transition) -> HorizonTables:
        """The rows, with their count against each limit and the ones ahead of a violation.

        Raises:
            NothingToLearnError: If the log has no cost, or none of its costs varies.
            InputError: If a column is missing or malformed.
        """
        columns = checked_columns(rows, spec, cost=True)
        limit_facts(columns, spec, self.quantity)
        counted = counted_steps(columns, spec)
        if self.evaluates == "behaviour":
            next_action = np.where(columns.last[:, None], 0, np.roll(columns.action, -1, axis=0))
            known = ~columns.last | columns.terminated
        else:
            keep = row_flags(rows, ("next_action",), "evaluates='policy' needs it")[2]
            next_action = finite_column(rows, "next_action", (len(keep), spec.n_action), keep)
            known = np.ones(len(columns.last), bool)
        violation = self.quantity == "violation"
        groups, weight = _violation_groups(columns, counted, self.horizon)
        f32: Any = partial(np.asarray, dtype=np.float32)
        sizes = np.array([len(group) for group in groups], np.int32)
        flags: Any = ~columns.terminated, known[:, None] | (counted & violation)
        row_indices: Any = (
            np.concatenate([*groups, np.zeros(0, np.int64)]).astype(np.int32),
            (np.cumsum(sizes) - sizes).astype(np.int32),
            sizes,
        )
        rows_of_log = HorizonRows(
            obs=f32(columns.obs),
            action=f32(columns.action),
            next_obs=f32(columns.next_obs),
            next_action=f32(next_action),
            counted=f32(counted if violation else columns.cost),
            follows=flags[0],
            known=flags[1],
            weight=f32(weight),
        )
        return HorizonTables(rows_of_log, *row_indices)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Members whose outputs are close to the first values, and their targets."""
        outputs = spec.n_cost * self.horizon
        members = self.networks.obs_action_networks(
            spec, outputs, key, members=self.members, last_bound=1e-2
        )
        return {"members": members}, {"members": members}

    def update(
        self, state: LearnerState, batch: HorizonRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of all members; the key is ignored."""
        rows, maps = jax.tree.map(lambda event: event[0], batch), state.preparation
        shift, scale = self.shift(maps), self.scale(maps)
        counted = Affine(jnp.zeros_like(scale), scale).to_scaled(rows.counted)
        inputs = _inputs(maps, rows.obs, rows.action)
        next_inputs = _inputs(maps, rows.next_obs, rows.next_action)
        heads = _heads(state.targets["members"], next_inputs, shift)
        targets = horizon_targets(
            counted[None],
            predictions(heads, self.quantity),
            rows.follows[None],
            quantity=self.quantity,
            discount=self.discount,
        )
        loss = partial(head_loss, quantity=self.quantity)
        rate = self.learning_rate * cosine(state.updates, self.decay_updates)
        data = (inputs, targets, rows.known, rows.weight, shift)
        state, value, _ = self.descend(state, "members", loss, *data, rate=rate)
        state = state.with_averaged_targets("members", tau=self.tau)
        return state.with_counters(**{UPDATES: state.updates + 1}), {"loss": value}

    def critic(self, state: LearnerState) -> SafetyCritic:
        """The uncalibrated critic of a state; its members are averaged over the training."""
        maps = state.preparation
        return SafetyCritic(
            obs=maps.obs,
            action=maps.action,
            members=state.targets["members"],
            shift=self.shift(maps),
            scale=self.scale(maps),
            calibration=identity_map(len(maps.cost_per)),
            quantity=self.quantity,
            horizon=self.horizon,
        )

    def scale(self, maps: Preparation) -> Float[Array, " cost"]:
        """Cost of one unit of the heads; 1 for probabilities."""
        violation = self.quantity == "violation"
        return jnp.ones_like(maps.cost_unit) if violation else maps.cost_unit

    def shift(self, maps: Preparation) -> Float[Array, " cost"]:
        """Offset of the outputs of every limit, so that they start at the first values."""
        if len(self.first_values) == 0:
            return jnp.zeros_like(maps.cost_unit)
        event_rates = jnp.stack([jnp.asarray(event, jnp.float32) for event in self.first_values])
        if self.quantity == "cost":
            return event_rates / maps.cost_unit
        event_rates = jnp.clip(event_rates, *RATES)
        return jnp.log(event_rates / (1 - event_rates))


def horizon_targets(
    counted: Float[Array, "*batch cost"],
    next_values: Float[Array, "*batch cost horizon"],
    follows: Bool[Array, " *batch"],
    *,
    quantity: Quantity,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch cost horizon"]:
    """One-step targets of all heads.

    ``y_j = x + s discount (1 - terminated) Q_{j-1}(s', a')`` with ``Q_0 = 0``, where ``s`` is
    ``1 - x`` for a violation and 1 for a cost. Head ``j`` needs only head ``j - 1``, so the targets
    of all heads are correct after ``horizon`` exact sweeps, whatever the networks predict.

    Args:
        counted: ``x``: 1 if the step counts against the limit, else 0; or its cost.
        next_values: Predictions of all heads for the following observation and action.
        follows: False if the plant ended the episode.
        quantity: ``"violation"`` or ``"cost"``.
        discount: Discount of the cost per step, in [0, 1].

    Returns:
        The targets.

    Example:
        >>> import jax.numpy as jnp
        >>> values = jnp.array([[[0.2, 0.4, 0.6]]])
        >>> targets = horizon_targets(jnp.zeros((1, 1)), values, jnp.array([True]),
        ...     quantity="violation", discount=1.0)
        >>> [round(float(y), 2) for y in targets[0, 0]]
        [0.0, 0.2, 0.4]

    Source: De Asis et al., Fixed-horizon temporal difference methods for stable reinforcement
    learning, arXiv 1909.03906, equation 4.
    """
    shifted_values = jnp.concatenate(
        [jnp.zeros_like(next_values[..., :1]), next_values[..., :-1]], -1
    )
    event = counted[..., None]
    next_term = discount * jnp.where(follows[..., None, None], shifted_values, 0)
    return event + ((1 - event) * next_term if quantity == "violation" else next_term)


def head_loss(
    members: MLP,
    inputs: Float[Array, "row in"],
    targets: Float[Array, "ens row cost horizon"],
    known: Bool[Array, "row cost"],
    weight: Float[Array, " row"],
    shift: Float[Array, " cost"],
    quantity: Quantity,
) -> tuple[Float[Array, ""], None]:
    """Cross-entropy of probabilities, or squared errors of costs, over the heads with a target.

    The error of a cost over ``j`` steps has weight ``1 / j``, because it grows with the steps.
    """
    heads = _heads(members, inputs, shift)
    if quantity == "violation":
        hazard = cumulative_hazard(heads)
        losses = (1 - targets) * hazard - targets * jnp.log(-jnp.expm1(-hazard))
    else:
        steps = jnp.arange(1, heads.shape[-1] + 1, dtype=heads.dtype)
        losses = jnp.square(predictions(heads, quantity) - targets) / steps[None, None, None]
    event_rates = jnp.arange(heads.shape[-1]) == 0
    head_weights = jnp.where(known[..., None] | event_rates[None, None], weight[:, None, None], 0)
    return jnp.sum(jnp.mean(losses * head_weights[None], axis=(1, 2, 3))), None


def _heads(members: MLP, inputs: Array, shift: Array) -> Float[Array, "ens row cost horizon"]:
    return jax.vmap(raw_heads, in_axes=(0, None, None))(members, inputs, shift)


def _inputs(maps: Preparation, obs: Array, action: Array) -> Float[Array, "row in"]:
    # Actions are not clipped, because the critic evaluates them as they are proposed.
    return jnp.concatenate([maps.obs.to_scaled(obs), maps.action.to_scaled(action)], axis=-1)


def _violation_groups(
    columns: Columns, counted: np.ndarray, horizon: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows ahead of a violation of each limit, and the importance weight of every row."""
    is_ahead = window_sums(columns, counted.astype(np.float64), horizon, 1.0) > 0
    groups = [np.flatnonzero(column) for column in is_ahead.T if 0 < column.sum() < len(column)]
    total = len(counted)
    if not groups:
        return [], np.ones(total)
    probability = np.full(total, 0.5 / total)
    for group in groups:
        probability[group] += 0.5 / (len(groups) * len(group))
    return groups, 1 / (total * probability)
