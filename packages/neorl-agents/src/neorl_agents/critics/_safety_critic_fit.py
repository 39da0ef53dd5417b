"""Fitting a safety critic on the logged costs."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_agents.calibration import identity_map, isotonic_map
from neorl_agents.critics._columns import Columns, checked_columns, split_columns
from neorl_agents.critics._horizon_learning import Draws, Rows, trained_members
from neorl_agents.critics._limit_facts import LimitFacts, counted_steps, limit_facts
from neorl_agents.critics._safety_critic import Quantity, SafetyCritic, horizon_curve
from neorl_agents.critics._windows import fully_seen, window_sums
from neorl_agents.learning import (
    as_widths,
    require,
    require_choice,
    require_count,
    require_flag,
    require_number,
    require_widths,
)
from neorl_agents.models import actions_along
from neorl_agents.networks import ensemble, init_mlp
from neorl_agents.optimisers import OPTIMISERS
from neorl_core import (
    InputError,
    Policy,
    Spec,
    Transition,
    as_arrays,
    highs,
    lows,
    standardiser,
    unit_interval,
)

RATES = (1e-4, 0.9)
"""Rates of an event that the first outputs of a network may stand for."""


class SafetyCriticSettings(eqx.Module):
    """How a safety critic is fitted.

    Attributes:
        discount: Discount of costs per step, in [0, 1]; 1 for probabilities.
        tau: Fraction by which the target networks move, in (0, 1].
        learning_rate: Learning rate at the start; it falls to zero along half a cosine.
        updates: Gradient steps.
        calibration_share: Part of the episodes that is held out for calibration, in (0, 1).
        quantity: ``"violation"`` or ``"cost"``; static.
        calibrated: Whether episodes are held out and the last heads calibrated on them; static.
        horizon: Steps ahead; static.
        members: Number of networks to average; static.
        hidden: Widths of the hidden layers; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``; static.
    """

    discount: float = 1.0
    tau: float = 0.02
    learning_rate: float = 1e-3
    updates: int = 10_000
    calibration_share: float = 0.25
    quantity: Quantity = eqx.field(static=True, default="violation")
    calibrated: bool = eqx.field(static=True, default=True)
    horizon: int = eqx.field(static=True, default=20)
    members: int = eqx.field(static=True, default=3)
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64), converter=as_widths)
    batch_size: int = eqx.field(static=True, default=256)
    optimiser: str = eqx.field(static=True, default="adam")

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_number(self, "discount", low=0, high=1)
        require_number(self, "tau", low=0, high=1, open_low=True)
        require_number(self, "learning_rate", low=0, open_low=True)
        share = {"low": 0, "high": 1, "open_low": True, "open_high": True}
        require_number(self, "calibration_share", **share)
        require_count(self, "updates", "horizon", "members", "batch_size")
        require_choice(self, "quantity", ("violation", "cost"))
        if self.quantity == "violation":
            require(self, "discount", self.discount == 1, "1 for a probability of violation")
        require_choice(self, "optimiser", OPTIMISERS)
        require_flag(self, "calibrated")
        require_widths(self, "hidden")


class FittedSafetyCritic(NamedTuple):
    """A safety critic, and what the log showed.

    Attributes:
        critic: Ready to be asked, in physical units.
        report: Rows, episodes and facts of every limit, ready for JSON.
    """

    critic: SafetyCritic
    report: dict[str, Any]


def fit_safety_critic(
    log: Transition,
    spec: Spec,
    key: PRNGKeyArray,
    *,
    settings: SafetyCriticSettings | None = None,
    policy: Policy | None = None,
) -> FittedSafetyCritic:
    """Fits the risk of every limit within the next steps, on the logged costs.

    Fitted-Q evaluation with a fixed horizon: :func:`horizon_targets` are regressed on rows of the
    log, of which every other one is drawn from those ahead of a violation, with importance weights
    that keep the expectation. A terminated row has nothing behind it; a truncated one bootstraps
    where the next action is known: always for a ``policy``, for the log's own behaviour only its
    first head is trained. Then the last head of each limit is mapped by isotonic regression to
    what was counted in held-out episodes.

    Args:
        log: Flat columns in physical units, episodes one after the other; with ``cost``,
            ``next_obs``, ``terminated`` and ``truncated``, and ``mask`` where some rows do not
            count.
        spec: Channels and limits of the log.
        key: Decides the held-out episodes, the first weights and the draws.
        settings: Hyperparameters; the default ones by default.
        policy: Who acts after the first action: a deterministic policy, or the log's own behaviour
            where none is given. What followed under another policy was not logged, so then nothing
            is held out and the risks are not calibrated.

    Returns:
        The critic, and the facts.

    Raises:
        NothingToLearnError: If the log has no cost, or nothing varies in any of them.
        InputError: If a column is missing or malformed, there is one episode to calibrate with, or
            the horizon is longer than any.
        ValueError: If a setting is out of range.

    Example:
        >>> import jax, numpy as np
        >>> from neorl_core import Channel, CostChannel, Spec, Transition
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (Channel("valve", "%", 0.0, 100.0),),
        ...     (CostChannel("overflow", "1", 0.0, "step"),), dt=60.0, horizon=50)
        >>> rng = np.random.default_rng(0)
        >>> level, valve = rng.uniform(0, 2, (2000, 1)), rng.uniform(0, 100, (2000, 1))
        >>> ends = np.arange(2000) % 50 == 49
        >>> log = Transition(level, valve, np.zeros(2000), cost=(level > 1.5).astype(float),
        ...     next_obs=np.roll(level, -1, axis=0), terminated=ends & False, truncated=ends)
        >>> few = SafetyCriticSettings(horizon=3, members=2, hidden=(16,), updates=200)
        >>> fitted = fit_safety_critic(log, spec, jax.random.key(0), settings=few)
        >>> fitted.report["limits"][0]["name"], fitted.critic.horizon
        ('overflow', 3)

    Source: Le, Voloshin and Yue, Batch policy learning under constraints, arXiv 1903.08738; De
    Asis et al., arXiv 1909.03906.
    """
    settings = SafetyCriticSettings() if settings is None else settings
    settings.validate()
    columns = checked_columns(log, spec, cost=True)
    limit_facts(columns, spec, settings.quantity)
    split_key, init_key, draw_key = jax.random.split(key, 3)
    calibrated = settings.calibrated and policy is None
    training, held = columns, None
    if calibrated:
        share = settings.calibration_share
        training, held = split_columns(columns, share, split_key, what="calibration")
        seen_windows(held, settings.horizon, spec)
    facts = limit_facts(training, spec, settings.quantity)
    critic = _fresh(settings, spec, training, init_key)
    rows, draws = _tables(settings, spec, training, critic, policy)
    members, loss = trained_members(
        as_arrays(settings), critic.members, rows, draws, critic.shift, draw_key,
        quantity=settings.quantity,
    )  # fmt: skip
    if not bool(jnp.isfinite(loss)):
        raise InputError(
            f"training ended with a loss of {float(loss)}; lower learning_rate, now "
            f"{settings.learning_rate:g}"
        )
    critic = eqx.tree_at(lambda c: c.members, critic, members)
    if held is not None:
        critic = _calibrated(critic, held, spec, settings)
    return FittedSafetyCritic(critic, _report(settings, training, held, facts, float(loss)))


def _fresh(
    settings: SafetyCriticSettings, spec: Spec, columns: Columns, key: PRNGKeyArray
) -> SafetyCritic:
    f32 = partial(jnp.asarray, dtype=jnp.float32)
    span = np.subtract(highs(spec.obs), lows(spec.obs))
    obs = standardiser(f32(columns.obs.mean(0)), f32(columns.obs.std(0)), span=f32(span))
    if settings.quantity == "violation":
        rate = np.clip(counted_steps(columns, spec).mean(0), *RATES)
        scale, shift = np.ones(spec.n_cost), np.log(rate / (1 - rate))
    else:
        spread = columns.cost.std(0)
        scale = np.where(spread > 0, spread, 1.0)
        shift = columns.cost.mean(0) / scale
    widths = (spec.n_obs + spec.n_action, *settings.hidden, spec.n_cost * settings.horizon)
    members = ensemble(settings.members, partial(init_mlp, widths, last_bound=1e-2), key)
    return SafetyCritic(
        obs=obs,
        action=unit_interval(spec.action),
        members=members,
        shift=f32(shift),
        scale=f32(scale),
        calibration=identity_map(spec.n_cost),
        quantity=settings.quantity,
        horizon=settings.horizon,
    )


def _tables(
    settings: SafetyCriticSettings,
    spec: Spec,
    columns: Columns,
    critic: SafetyCritic,
    policy: Policy | None,
) -> tuple[Rows, Draws]:
    counted = counted_steps(columns, spec)
    if policy is None:
        next_action = np.where(columns.last[:, None], 0, np.roll(columns.action, -1, axis=0))
        known = ~columns.last | columns.terminated
    else:
        seen = (columns.obs, columns.action, columns.next_obs, columns.last)
        next_action, known = actions_along(policy, *seen), np.ones(len(columns.last), bool)
    draws, weight = _draws(columns, counted, settings.horizon)
    x = counted if settings.quantity == "violation" else columns.cost / np.asarray(critic.scale)
    settled = counted & (settings.quantity == "violation")
    inputs = partial(_inputs, critic)
    f32 = partial(jnp.asarray, dtype=jnp.float32)
    rows = Rows(
        inputs=inputs(columns.obs, columns.action),
        next_inputs=inputs(columns.next_obs, next_action),
        counted=f32(x),
        follows=jnp.asarray(~columns.terminated),
        known=jnp.asarray(known[:, None] | settled),
        weight=f32(weight),
    )
    return rows, draws


def _inputs(critic: SafetyCritic, obs: np.ndarray, action: np.ndarray) -> jax.Array:
    """Scaled on the host in float64: a narrow band far from zero keeps its digits."""
    scaled = [
        (x - np.asarray(by.offset, np.float64)) / np.asarray(by.scale, np.float64)
        for x, by in ((obs, critic.obs), (action, critic.action))
    ]
    return jnp.asarray(np.concatenate(scaled, axis=1), jnp.float32)


def _draws(columns: Columns, counted: np.ndarray, horizon: int) -> tuple[Draws, np.ndarray]:
    """Rows ahead of a violation of each limit, and the weight that makes up for drawing them."""
    ahead = window_sums(columns, counted.astype(np.float64), horizon, 1.0) > 0
    groups = [np.flatnonzero(column) for column in ahead.T if 0 < column.sum() < len(column)]
    total = len(counted)
    if not groups:
        none = jnp.zeros(0, jnp.int32)
        return Draws(none, none, none), np.ones(total)
    chance = np.full(total, 0.5 / total)
    for group in groups:
        chance[group] += 0.5 / (len(groups) * len(group))
    counts = np.array([len(group) for group in groups])
    i32 = partial(jnp.asarray, dtype=jnp.int32)
    draws = Draws(i32(np.concatenate(groups)), i32(np.cumsum(counts) - counts), i32(counts))
    return draws, 1 / (total * chance)


def _calibrated(
    critic: SafetyCritic, held: Columns, spec: Spec, settings: SafetyCriticSettings
) -> SafetyCritic:
    predicted, observed, _ = outcomes(critic, held, spec, discount=settings.discount)
    return eqx.tree_at(lambda c: c.calibration, critic, isotonic_map(predicted, observed))


def outcomes(
    critic: SafetyCritic, columns: Columns, spec: Spec, *, discount: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the last heads say before calibration, and what followed in the log.

    Args:
        critic: A critic.
        columns: Rows of complete episodes.
        spec: Channels and limits.
        discount: Discount of a cost per step.

    Returns:
        Predictions and outcomes of shape ``(row, cost)``, and the number of the episode, of the
        rows whose window the log shows.

    Raises:
        InputError: If it shows no window.
    """
    seen = seen_windows(columns, critic.horizon, spec)
    if critic.quantity == "violation":
        counted = counted_steps(columns, spec).astype(np.float64)
        happened = (window_sums(columns, counted, critic.horizon, 1.0) > 0).astype(np.float64)
    else:
        happened = window_sums(columns, columns.cost, critic.horizon, discount)
    obs, action = (jnp.asarray(x[seen], jnp.float32) for x in (columns.obs, columns.action))
    predicted = np.asarray(_last_heads(critic, obs, action), np.float64)
    return predicted, happened[seen], columns.episode[seen]


def seen_windows(columns: Columns, horizon: int, spec: Spec) -> np.ndarray:
    """Which rows have a window that the log shows.

    Raises:
        InputError: If none has.
    """
    seen = fully_seen(columns, horizon, spec.horizon)
    if not seen.any():
        raise InputError(
            f"no window of {horizon} steps lies within an episode of {spec.horizon} steps of this "
            "log; choose a shorter horizon, or record longer episodes"
        )
    return seen


@jax.jit
def _last_heads(critic: SafetyCritic, obs: jax.Array, action: jax.Array) -> jax.Array:
    return jax.vmap(lambda o, a: horizon_curve(critic, o, a)[:, -1])(obs, action)


def _report(
    settings: SafetyCriticSettings,
    training: Columns,
    held: Columns | None,
    facts: tuple[LimitFacts, ...],
    loss: float,
) -> dict[str, Any]:
    return {
        "quantity": settings.quantity,
        "horizon": settings.horizon,
        "calibrated": held is not None,
        "rows": len(training.last),
        "episodes": len(training.episodes),
        "calibration_episodes": 0 if held is None else len(held.episodes),
        "loss": loss,
        "limits": [one._asdict() for one in facts],
    }
