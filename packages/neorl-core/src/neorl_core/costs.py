"""Costs and their limits in learning: penalties, multipliers, targets of cost critics."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from neorl_core._internal.checks import (
    booleans,
    checked_integer,
    checked_positive,
    checked_probability,
    floats,
    is_concrete,
    like,
    nan_unless,
    require_length,
    require_members,
    require_rank,
    require_same_shape,
    require_scalar,
)
from neorl_core._internal.missing_names import missing_name
from neorl_core._vocabulary.channels import CostChannel, CostPer
from neorl_core.targets import td_target

__all__ = [
    "LimitKind",
    "MultiplierState",
    "discounted_cost_limit",
    "discounted_cost_target",
    "limit_kind",
    "penalised_reward",
    "pid_multiplier_init",
    "pid_multiplier_step",
    "reachability_target",
    "step_cost_limit",
]
globals()["__getattr__"] = missing_name(__name__, __all__)

# Kinds of cost limits: a limit bounds each step of an episode, or the sum over it.


Reduction = TypeVar("Reduction")


class LimitKind(ABC):
    """The meaning of a cost limit, for code that reduces, compares or describes costs.

    An episode with costs ``c_0, ..., c_n`` satisfies a limit ``d`` per step if ``max_t c_t <= d``,
    and a limit ``d`` per episode if ``sum_t c_t <= d``.

    Attributes:
        per: Either ``"step"`` or ``"episode"``, as in :class:`~neorl_core.CostChannel`.
        quantity: Name of the quantity that is compared with the limit.
        counted: Name, in the plural, of what may exceed the limit.
        counted_rows: Description of the steps above :meth:`row_threshold`, to follow the word
            "steps".
        trend: Description of the curve of :meth:`along`, to follow the name of the cost.
        bounds_largest: Whether the limit must hold for the largest quantity over all episodes,
            rather than for their mean.

    Source:
        Altman, Constrained Markov Decision Processes (1999), for sums; limits per step are the
        hard constraints of process control.
    """

    per: ClassVar[CostPer]
    quantity: ClassVar[str]
    counted: ClassVar[str]
    counted_rows: ClassVar[str]
    trend: ClassVar[str]
    bounds_largest: ClassVar[bool]

    @abstractmethod
    def of_episode(self, total: Reduction, worst: Reduction) -> Reduction:
        """The one that the limit bounds: the sum over an episode, or the largest cost of a step."""

    @abstractmethod
    def along(self, cost: Float[np.ndarray, "time"]) -> Float[np.ndarray, "time"]:
        """The curve of one episode that a trend plot shows beside the limit.

        Args:
            cost: Cost of every step of the episode, in the unit of the channel.

        Returns:
            The cost of every step, or its sum up to that step. If no cost is negative, the curve
            exceeds the limit somewhere exactly when the episode violates it.
        """

    @abstractmethod
    def row_threshold(self, limit: float) -> float:
        """The cost above which one step counts against a limit, in the unit of the cost."""

    def of_rows(self, cost: Float[Array, "time"]) -> Float[Array, ""]:
        """The limited quantity of one episode; use ``jax.vmap`` for several.

        Args:
            cost: Cost of every step of the episode, in the unit of the channel; a NumPy or JAX
                array with at least one step. NaN gives NaN.

        Returns:
            The largest cost of a step, or the sum over the steps, in the dtype of ``cost``;
            integers give floats.

        Raises:
            ValueError: If ``cost`` does not have time as its only axis, or has no step.
        """
        if cost.ndim != 1 or not cost.size:
            raise ValueError(
                f"cost must have the axis (time) of at least one step, got shape {cost.shape}; "
                "for several episodes or channels use jax.vmap"
            )
        if isinstance(cost, jax.Array):
            cost = floats(cost)
        else:  # NumPy keeps its precision, float64 included.
            cost = np.asarray(cost, np.result_type(cost, np.float32))
        return self.of_episode(total=cost.sum, worst=cost.max)()

    def exceeded(
        self, quantity: Any, limit: float | Float[Array, "..."]
    ) -> Bool[Array, "..."] | Bool[np.ndarray, "..."]:
        """Whether a limited quantity violates its limit; equality does not, NaN does.

        Args:
            quantity: Limited quantity of any shape, as returned by :meth:`of_rows`. Anything but a
                JAX array is compared by NumPy, in its own precision.
            limit: Limit of the channel, in the unit of the cost.

        Returns:
            A boolean for every quantity.
        """
        values = quantity if isinstance(quantity, jax.Array) else np.asarray(quantity)
        # Not `>`, which lets NaN pass.
        return ~(values <= limit)

    def limit_words(self, limit: float, unit: str) -> str:
        """A limit in words, with its unit; ``"1"`` and an unknown unit, ``"?"``, are not shown.

        A multiplication sign stands before a unit that begins with a digit, such as
        ``"100 units"``.

        Example:
            >>> from neorl_core import CostChannel
            >>> from neorl_core.costs import limit_kind
            >>> limit_kind(CostChannel("pressure", "bar", 0.5, "step")).limit_words(0.5, "bar")
            '0.5 bar per step'
        """
        sign = "× " if unit[:1].isdigit() else ""
        text = f"{limit:g}" if unit in ("1", "?") else f"{limit:g} {sign}{unit}"
        return f"{text} per {self.per}"


class _PerStep(LimitKind):
    per = "step"
    quantity = "worst step of an episode"
    counted = "steps"
    counted_rows = "above the limit"
    trend = "per step"
    bounds_largest = True

    def of_episode(self, total: Reduction, worst: Reduction) -> Reduction:
        return worst

    def along(self, cost: Float[np.ndarray, "time"]) -> Float[np.ndarray, "time"]:
        return cost

    def row_threshold(self, limit: float) -> float:
        return limit


class _PerEpisode(LimitKind):
    per = "episode"
    quantity = "sum over an episode"
    counted = "episodes"
    counted_rows = "with a cost"
    trend = "so far"
    bounds_largest = False

    def of_episode(self, total: Reduction, worst: Reduction) -> Reduction:
        return total

    def along(self, cost: Float[np.ndarray, "time"]) -> Float[np.ndarray, "time"]:
        return np.cumsum(cost)

    def row_threshold(self, limit: float) -> float:
        return 0.0  # Every cost adds to the sum.


# A further kind also needs its word in CostPer.
_KINDS: dict[str, LimitKind] = {kind.per: kind for kind in (_PerStep(), _PerEpisode())}


def limit_kind(channel: CostChannel | CostPer) -> LimitKind:
    """The kind of limit of a cost channel, which defines the quantity that is bounded.

    Args:
        channel: The channel, or its ``per``.

    Returns:
        The single definition of that kind of limit.

    Raises:
        ValueError: If there is no such kind of limit.

    Example:
        >>> from neorl_core.costs import limit_kind
        >>> limit_kind("episode").quantity
        'sum over an episode'
    """
    per = channel if isinstance(channel, str) else channel.per
    if per not in _KINDS:
        choices = " or ".join(map(repr, _KINDS))
        raise ValueError(f"a limit is per {choices}, got {per!r}; choose one of them")
    return _KINDS[per]


# Targets of cost critics, and the cost limits converted to their units.


def discounted_cost_target(
    cost: Float[Array, "*batch"],
    next_values: Float[Array, "ens *batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The one-step target of a cost critic that uses the largest of several estimates.

    ``cost + discount (1 - terminated) max_i next_values[i]``: pessimistic about cost.

    Args:
        cost: Any shape.
        next_values: One estimate per member along the first axis, each with the shape of ``cost``.
        terminated: Shape of ``cost``; a truncated step bootstraps.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, with the shape of ``cost``.

    Raises:
        ValueError: If the shapes disagree, there is no member, or a concrete ``discount`` is
            outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> values = jnp.array([2.0, 4.0])
        >>> float(discounted_cost_target(jnp.array(1.0), values, jnp.array(False), discount=0.5))
        3.0
    """
    require_same_shape("cost", cost, "terminated", terminated)
    require_members("next_values", next_values, "cost", cost)
    worst = jnp.max(floats(next_values), axis=0)
    return td_target(floats(cost), worst, booleans(terminated), discount=discount)


def reachability_target(
    constraint: Float[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The one-step target of a feasibility critic: the worst constraint value from here on.

    ``(1 - discount) h + discount max(h, next_value)``, and ``h`` where terminated, with ``h =
    constraint``. A state can be kept safe if its value at the fixed point is at most zero.

    Args:
        constraint: ``h``, positive where the constraint is violated.
        next_value: Value of the next observation, same shape; ignored where terminated.
        terminated: Same shape.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, same shape.

    Raises:
        ValueError: If the shapes differ, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> h, value = jnp.array([-1.0, -1.0]), jnp.array([3.0, 3.0])
        >>> reachability_target(h, value, jnp.array([False, True]), discount=0.5).tolist()
        [1.0, -1.0]

    Source: Fisac et al., Bridging Hamilton-Jacobi safety analysis and reinforcement learning,
    2019; Zheng et al., Safe offline reinforcement learning with feasibility-guided diffusion
    model, arXiv 2401.10700, equation 6.
    """
    require_same_shape("constraint", constraint, "next_value", next_value)
    require_same_shape("constraint", constraint, "terminated", terminated)
    discount = checked_probability("discount", discount, closed=True)
    here, gamma = floats(constraint), like(discount, floats(constraint))
    following = jnp.where(booleans(terminated), here, floats(next_value))
    return (1 - gamma) * here + gamma * jnp.maximum(here, following)


def step_cost_limit(limit: ArrayLike, *, horizon: int | Int[Array, ""]) -> Array:
    """The mean cost per step at which an episode of ``horizon`` steps reaches its limit.

    ``limit / horizon``: the limit for a weighted mean of the costs of rows.

    Args:
        limit: Largest sum of costs over an episode, any shape, not negative; NaN under ``jit``
            where it is negative.
        horizon: Number of steps of an episode, at least one; NaN under ``jit`` if it is smaller or
            not an integer.

    Returns:
        The limit per step, same shape.

    Raises:
        ValueError: If ``horizon`` is not a positive integer, or a concrete limit is negative
            or not finite.

    Example:
        >>> float(step_cost_limit(10.0, horizon=4))
        2.5
    """
    horizon = _checked_horizon(horizon)
    limit = checked_positive("limit", limit, or_zero=True, many=True)
    return floats(limit) / horizon


def discounted_cost_limit(
    limit: ArrayLike, *, horizon: int | Int[Array, ""], discount: float | Float[Array, ""]
) -> Array:
    """The value of a discounted cost critic at which an episode reaches its limit.

    ``(limit / horizon) (1 - discount^horizon) / (1 - discount)``: the discounted sum of a cost that
    is spread evenly over the episode; ``limit`` itself if ``discount = 1``.

    Args:
        limit: Largest undiscounted sum of costs over an episode, any shape, not negative; NaN
            under ``jit`` where it is negative.
        horizon: Number of steps of an episode, at least one; NaN under ``jit`` if it is smaller or
            not an integer.
        discount: Discount factor of the critic, in [0, 1]; NaN under ``jit`` if it is outside.

    Returns:
        The limit for the critic's value, same shape as ``limit``.

    Raises:
        ValueError: If ``horizon`` is not a positive integer, a concrete limit is negative or
            not finite, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> round(float(discounted_cost_limit(10.0, horizon=300, discount=0.99)), 2)
        3.17

    Source: the conversion of the offline safe RL library OSRL and of FISOR.
    """
    discount = checked_probability("discount", discount, closed=True)
    horizon = _checked_horizon(horizon)
    per_step = step_cost_limit(limit, horizon=horizon)
    gamma = like(discount, per_step)
    inside = (gamma > 0) & (gamma < 1)
    safe = jnp.where(inside, gamma, 0.5)
    # expm1 keeps the digits of 1 - discount^horizon where the discount is near one.
    series = jnp.expm1(horizon * jnp.log(safe)) / jnp.expm1(jnp.log(safe))
    end = jnp.where(jnp.isnan(gamma), gamma, jnp.where(gamma > 0, horizon, 1))
    return per_step * jnp.where(inside, series, end)


def _checked_horizon(horizon: Any) -> Any:
    """The horizon as a positive integer; a traced number becomes NaN if it is not one."""
    if is_concrete(horizon):
        return checked_integer(
            "horizon", horizon, 1, "give the largest number of steps of an episode"
        )
    return nan_unless((horizon >= 1) & (horizon == jnp.floor(horizon)), horizon)


# The Lagrange multiplier of a cost limit as a PID controller with a clamped integrator.


class MultiplierState(NamedTuple):
    """State of :func:`pid_multiplier_step`.

    Attributes:
        error: Exponential moving average of the excess over the limit, in units of cost.
        cost: Exponential moving averages of the cost, newest last, shape ``(delay + 1,)``.
        integral: The integral part of the multiplier.
    """

    error: Float[Array, ""]
    cost: Float[Array, " history"]
    integral: Float[Array, ""]


def pid_multiplier_init(cost: Float[Array, ""], *, delay: int) -> MultiplierState:
    """A multiplier at rest: zero error and integral, with ``cost`` as its history.

    Args:
        cost: A first measurement of the episode's cost, so that the derivative starts at zero.
        delay: Steps over which the derivative part looks back, static, at least one.

    Returns:
        The state.

    Raises:
        ValueError: If ``delay`` is not a positive integer or ``cost`` is not a scalar.
    """
    delay = checked_integer("delay", delay, 1, "1 compares with the step before")
    require_scalar("cost", cost)
    cost = floats(cost)
    zero = jnp.zeros_like(cost)
    return MultiplierState(zero, jnp.full((delay + 1,), cost), zero)


def pid_multiplier_step(
    state: MultiplierState,
    cost: Float[Array, ""],
    limit: Float[Array, ""],
    *,
    kp: float | Float[Array, ""],
    ki: float | Float[Array, ""],
    kd: float | Float[Array, ""],
    smoothing: float | Float[Array, ""] = 0.95,
    max_integral: float | Float[Array, ""] = 10.0,
    max_multiplier: float | Float[Array, ""] = 100.0,
) -> tuple[MultiplierState, Float[Array, ""]]:
    """One update of the multiplier from one measured cost.

    With ``e = cost - limit`` and ``a = smoothing``: ``P = a P + (1 - a) e``,
    ``C = a C + (1 - a) cost``, ``D = max(0, C_t - C_{t - delay})``,
    ``I = clip(I + ki e, 0, max_integral)``, and the multiplier is
    ``clip(kp P + I + kd D, 0, max_multiplier)``.

    The integrator itself is clamped. If only the multiplier were clamped, the integral would wind
    up during a long violation, and the multiplier would take as long to fall again.

    Args:
        state: State from :func:`pid_multiplier_init` or the last step.
        cost: Measured cost of an episode.
        limit: Limit of that cost, same unit.
        kp: Proportional gain, multiplier units per cost unit, not negative.
        ki: Integral gain, per step, not negative.
        kd: Derivative gain, which acts on rising cost only, not negative.
        smoothing: Weight of the past in the exponential moving averages, in [0, 1].
        max_integral: Largest integral part, positive.
        max_multiplier: Largest multiplier, positive.

    Returns:
        The new state and the multiplier, a scalar. The multiplier is NaN under ``jit`` if a gain, a
        largest value or ``smoothing`` is outside its range.

    Raises:
        ValueError: If an argument or a field of the state does not have the stated rank, a concrete
            gain is negative, a largest value is not positive or ``smoothing`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> state = pid_multiplier_init(jnp.array(12.0), delay=1)
        >>> gains = {"kp": 0.0, "ki": 0.25, "kd": 0.0}
        >>> state, multiplier = pid_multiplier_step(
        ...     state, jnp.array(12.0), jnp.array(10.0), **gains
        ... )
        >>> float(multiplier)
        0.5

    Source: Stooke, Achiam and Abbeel, Responsive safety in reinforcement learning by PID
    Lagrangian methods, arXiv 2007.03964, algorithm 1.
    """
    for name, number in (
        ("state.error", state.error),
        ("state.integral", state.integral),
        ("cost", cost),
        ("limit", limit),
    ):
        require_scalar(name, number)
    require_rank("state.cost", state.cost, 1, "history")
    require_length("state.cost", state.cost, 2)
    kp = checked_positive("kp", kp, or_zero=True)
    ki = checked_positive("ki", ki, or_zero=True)
    kd = checked_positive("kd", kd, or_zero=True)
    max_integral = checked_positive("max_integral", max_integral)
    max_multiplier = checked_positive("max_multiplier", max_multiplier)
    smoothing = checked_probability("smoothing", smoothing, closed=True)
    cost = floats(cost)
    excess = cost - floats(limit)
    keep = like(smoothing, cost)
    error = keep * state.error + (1 - keep) * excess
    newest = keep * state.cost[-1] + (1 - keep) * cost
    history = jnp.concatenate([state.cost[1:], newest[None]])
    rise = jnp.maximum(newest - history[0], 0)
    integral = jnp.clip(state.integral + like(ki, cost) * excess, 0, like(max_integral, cost))
    unclipped = like(kp, cost) * error + integral + like(kd, cost) * rise
    multiplier = jnp.clip(unclipped, 0, like(max_multiplier, cost))
    return MultiplierState(error, history, integral), multiplier


# Reward minus the weighted costs.


def penalised_reward(
    reward: Float[Array, "*batch"],
    cost: Float[Array, "*batch cost"],
    penalty: Float[Array, " cost"],
) -> Float[Array, "*batch"]:
    """The reward minus ``penalty[i]`` for every unit of cost ``i``.

    ``reward - sum_i penalty[i] cost[i]``: the reward for learners that do not handle constraints.

    Args:
        reward: Any shape.
        cost: The shape of ``reward`` plus a last axis of cost channels, which may have length zero.
        penalty: Reward per unit of each cost, not negative, shape ``(cost,)``; NaN results under
            ``jit`` if one is negative.

    Returns:
        The penalised reward, with the shape of ``reward``; a NumPy array if both arguments are, so
        that the columns of a log stay on the host.

    Raises:
        ValueError: If the shapes disagree or a concrete ``penalty`` is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> float(penalised_reward(jnp.array(1.0), jnp.array([2.0, 0.0]), jnp.array([0.25, 9.0])))
        0.5
    """
    if np.shape(cost) != (*np.shape(reward), *np.shape(penalty)) or np.ndim(penalty) != 1:
        raise ValueError(
            "cost must have the shape of reward and one last axis as long as penalty, got "
            f"reward {np.shape(reward)}, cost {np.shape(cost)}, penalty {np.shape(penalty)}; "
            "give one penalty weight for each cost channel"
        )
    penalty = checked_positive("penalty", penalty, or_zero=True, many=True)
    if not (isinstance(reward, np.ndarray) and isinstance(cost, np.ndarray)):
        reward, cost = floats(reward), floats(cost)
    weights = np.asarray(penalty, reward.dtype) if is_concrete(penalty) else penalty
    for i in range(np.shape(weights)[0]):
        # Added term by term, so that any block size gives the same sums on the host and compiled.
        reward = reward - (weights[i] * cost[..., i]).astype(reward.dtype)
    return reward
