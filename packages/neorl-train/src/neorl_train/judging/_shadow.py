"""What policies would have done on a log, while the plant receives the logged actions.

They are compared with baselines without learning: the mean logged action and a straight line.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Policy, Spec, Transition, as_arrays, highs, lows
from neorl_core.control import ConstantPolicy, StateFeedback, follow
from neorl_envs import Dataset
from neorl_envs.inspection import log_zone, moment
from neorl_safety.filters import SafetyReport
from neorl_train.judging._pool import Pool, as_pool
from neorl_train.judging._results import BEST, LINE, MEAN, MEDIAN, WORST, ActionFit, Band, Stretch
from neorl_train.judging._rollouts import is_guarded, report_of
from neorl_train.judging._summary import mean_estimates
from neorl_train.judging._tables import Estimate

EPISODES = 256


class _ShadowState(NamedTuple):
    policy: Any
    carry: Any
    key: PRNGKeyArray


def action_fits(
    policies: Pool | Mapping[str, Policy],
    dataset: Dataset,
    *,
    level: float,
    controllers: Mapping[str, Policy] | None = None,
) -> tuple[ActionFit, ...]:
    """Runs every policy in shadow on the first episodes of a log.

    In each step the policy proposes an action for the logged observation and then receives the
    logged action, as it would beside a running plant.

    Args:
        policies: Candidates, or policies by name.
        dataset: Log of episodes on which they were not trained.
        level: Confidence level of the intervals.
        controllers: Controllers by name, which are only compared and come first.

    Returns:
        One entry for each policy and action channel. If one of the controllers is ``"linear
        feedback"``, the others are compared with it episode by episode.
    """
    pool = as_pool(policies)
    policies = {**(controllers or {}), **pool.policies}
    if not policies:
        return ()
    obs, action, mask = _pad(dataset)
    counted = mask.any(axis=1)
    proposals = {
        name: np.asarray(jax.device_get(shadow(as_arrays(policy), obs, action))[0], np.float64)
        for name, policy in policies.items()
    }
    distances = {
        name: np.where(mask[..., None], np.abs(proposed - action), 0.0)[counted].sum(axis=1)
        / mask[counted].sum(axis=1)[:, None]
        for name, proposed in proposals.items()
    }
    columns = {(name, ""): distances[name] for name in proposals}
    if LINE in distances:
        columns |= {
            (name, LINE): distances[name] - distances[LINE] for name in proposals if name != LINE
        }
    # All in one table, because the bootstrap takes as long for a few columns as for many.
    estimates = iter(mean_estimates(np.concatenate([*columns.values()], axis=1), level=level))
    n_action = dataset.spec.n_action
    means = {key: [next(estimates) for _ in range(n_action)] for key in columns}
    fits: list[ActionFit] = []
    for name, proposed in proposals.items():
        beyond = means.get((name, LINE), [None] * n_action)
        distance = means[name, ""]
        fits += _fits(
            name, proposed[mask], action[mask], distance, beyond, dataset.spec, counted.sum()
        )
    return tuple(
        dataclasses.replace(fit, group=pool[fit.policy].group, family=pool[fit.policy].family)
        if fit.policy in pool
        else dataclasses.replace(fit, group=fit.policy)
        for fit in fits
    )


@jax.jit
def shadow(
    policy: Policy, obs: Float[Array, "episode time obs"], action: Float[Array, "episode time act"]
) -> tuple[Float[Array, "episode time act"], SafetyReport]:
    """Actions that a policy would have taken in logged episodes, given the logged actions.

    Args:
        policy: Policy, guarded or not, with array leaves. One program is compiled for each kind.
        obs: Observations of the log.
        action: Actions that the plant received.

    Returns:
        The actions that it requests, and the report of its guard; an empty report if it has none.
    """
    return jax.vmap(_episode, in_axes=(None, 0, 0))(policy, obs, action)


def _episode(
    policy: Policy, obs: Float[Array, "time obs"], action: Float[Array, "time act"]
) -> tuple[Float[Array, "time act"], SafetyReport]:
    start = _ShadowState(policy, policy.initial_carry(), jax.random.key(0))
    return jax.lax.scan(_step, start, (obs, action))[1]


def _step(
    state: _ShadowState, row: tuple[Array, Array]
) -> tuple[_ShadowState, tuple[Array, SafetyReport]]:
    obs, logged = row
    key, used = jax.random.split(state.key)
    carry, proposed = state.policy(state.carry, obs, used)
    report = report_of(carry, proposed)
    if is_guarded(carry):  # reported to a guard as if its own proposal had become the logged action
        carry = state.policy.sent(carry, logged)
    else:
        carry = follow(state.policy, carry, logged)
    return state._replace(carry=carry, key=key), (proposed, report)


def _pad(dataset: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, mask = dataset.padded_rows(slice(EPISODES))
    columns: Any = dataset.transitions
    return columns.obs[rows], columns.action[rows], mask


def _fits(
    name: str,
    requested: np.ndarray,
    logged: np.ndarray,
    means: Sequence[Estimate],
    beyond: Sequence[Estimate | None],
    spec: Spec,
    n_episodes: int,
) -> list[ActionFit]:
    logged = logged.astype(np.float64)
    variance = logged.var(axis=0)
    unexplained = ((requested - logged) ** 2).mean(axis=0)
    # The inner `where` keeps NumPy from dividing by zero before the outer one discards the result.
    explained = np.where(
        variance > 0, 1 - unexplained / np.where(variance > 0, variance, 1), np.nan
    )
    return [
        ActionFit(
            policy=name,
            channel=channel.name,
            unit=channel.unit,
            difference=means[i],
            deviation=float(np.sqrt(variance[i])),
            explained=float(explained[i]),
            n_episodes=int(n_episodes),
            n_rows=len(logged),
            beyond_line=beyond[i],
        )
        for i, channel in enumerate(spec.action)
    ]


LONGEST_S, LONGEST = 86_400.0, 2_000
"""A stretch lasts at most a day and has at most as many steps as a figure can show."""
NEIGHBOURS, LIBRARY, AT_ONCE = 50, 20_000, 200
"""Number of similar situations to find, rows to search, and rows to process at a time."""
MAX_CHANNELS = 4


def stretches(
    policy: Policy,
    dataset: Dataset,
    *,
    name: str,
    channels: Sequence[str],
    held_out: Sequence[int] = (),
) -> tuple[Stretch, ...]:
    """Proposals of a policy in the logged situations of three stretches.

    The stretches are those with the largest, the median and the smallest mean reward. Episodes
    longer than a day are cut. If the episode allows it, the policy starts one stretch earlier. It
    receives the logged action in each step and influences nothing: the situations are the logged
    ones.

    For each row, the coverage of the log is the range of the actions in the 50 rows of other
    stretches whose standardised observations are nearest.

    Returns:
        Best, median and worst; fewer if the log has fewer than three stretches.
    """
    length = max(int(min(LONGEST_S / dataset.spec.dt, LONGEST)), 2)
    spans, rewards = _spans(dataset, length)
    chosen = _choose(rewards)
    starts = np.asarray(dataset.episode_starts)
    episodes = np.searchsorted(starts, spans[:, 0], side="right") - 1
    warm_up_starts = np.maximum(spans[:, 0] - length, starts[episodes])
    columns: Any = dataset.transitions
    picked = list(chosen.values())
    # The first row is repeated, so that the policy has received an action before its first
    # proposal.
    count = np.maximum(np.arange(2 * length + 1) - 1, 0)
    rows = np.minimum(warm_up_starts[picked, None] + count, spans[picked, 1:] - 1)
    obs, action = np.asarray(columns.obs)[rows], np.asarray(columns.action)[rows]
    proposed, report = jax.device_get(shadow(as_arrays(policy), obs, action))
    zone = log_zone(dataset.attributes)
    order = [c.name for c in dataset.spec.obs]
    shown = [order.index(channel) for channel in channels]
    selected = []
    for row, (label, span) in enumerate(chosen.items()):
        (begin, end), lead = spans[span], spans[span, 0] - warm_up_starts[span] + 1
        window = slice(lead, lead + end - begin)
        low, high = _coverage(dataset, begin, end)
        stamp, when = np.nan, ""
        if dataset.time is not None:
            stamp, origin = float(dataset.time[begin]), dataset.attributes.get("time_origin")
            when = moment(stamp, origin, zone, "%Y-%m-%d %H:%M")
        selected.append(
            Stretch(
                label=label,
                policy=name,
                episode=int(episodes[span]),
                first=int(begin - starts[episodes[span]]),
                stamp=stamp,
                held_out=int(episodes[span]) in set(held_out),
                reward=float(rewards[span]),
                channels=tuple(channels),
                obs=obs[row, window][:, shown].astype(np.float64),
                logged=action[row, window].astype(np.float64),
                proposed=proposed[row, window].astype(np.float64),
                low=low,
                high=high,
                cost=np.asarray(columns.cost[begin:end], np.float64),
                flags=np.asarray(report.flags[row, window], np.int64),
                known=np.asarray(columns.mask[begin:end], bool),
                when=when,
            )
        )
    return tuple(selected)


def _spans(
    dataset: Dataset, length: int
) -> tuple[Int[np.ndarray, "stretch 2"], Float[np.ndarray, " stretch"]]:
    """First row and end row of every stretch, and the mean reward of its known rows.

    Stretches that are much shorter than usual, or mostly unknown, are left out, because a mean over
    a few steps is extreme by chance.
    """
    spans = np.array(
        [
            (first, min(first + length, end))
            for start, end in zip(dataset.episode_starts, dataset.episode_ends, strict=True)
            for first in range(int(start), int(end), length)
        ]
    )
    columns: Any = dataset.transitions
    mask = np.asarray(columns.mask, bool)
    reward = np.where(mask, np.asarray(columns.reward, np.float64), 0.0)
    known = np.add.reduceat(mask.astype(np.int64), spans[:, 0])
    means = np.add.reduceat(reward, spans[:, 0]) / np.maximum(known, 1)
    usable = known >= max(np.median(known) / 2, 1)
    return spans[usable], means[usable]


def _choose(rewards: Float[np.ndarray, " stretch"]) -> dict[str, int]:
    order = [int(span) for span in np.argsort(-rewards, kind="stable")]
    chosen = {BEST: order[0]}
    if len(order) > 2:
        chosen[MEDIAN] = order[len(order) // 2]
    if len(order) > 1:
        chosen[WORST] = order[-1]
    return chosen


def _coverage(dataset: Dataset, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest action of the log in situations similar to those of given rows."""
    columns: Any = dataset.transitions
    usable = np.asarray(columns.mask, bool).copy()
    usable[begin:end] = False
    library = np.flatnonzero(usable)
    if len(library) > LIBRARY:
        library = library[np.linspace(0, len(library) - 1, LIBRARY).astype(int)]
    shape = (end - begin, dataset.spec.n_action)
    if not len(library):
        return np.full(shape, np.nan), np.full(shape, np.nan)
    known = np.asarray(columns.obs)[library].astype(np.float64)
    mean, scale = known.mean(axis=0), known.std(axis=0)
    moving = scale > 0  # a channel that never changes does not distinguish situations
    known = (known - mean)[:, moving] / scale[moving]
    queries = np.asarray(columns.obs[begin:end], np.float64)
    queries = (queries - mean)[:, moving] / scale[moving]
    actions = np.asarray(columns.action)[library].astype(np.float64)
    squares = (known**2).sum(axis=1)
    count = min(NEIGHBOURS, len(library))
    low, high = np.empty(shape), np.empty(shape)
    for first in range(0, len(queries), AT_ONCE):
        block = slice(first, first + AT_ONCE)
        # The squared norm of the query is the same for every row of the library, so it is left out.
        distances = squares - 2 * queries[block] @ known.T
        nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
        low[block], high[block] = actions[nearest].min(axis=1), actions[nearest].max(axis=1)
    return low, high


_ABOVE = re.compile(r"greatest\(\s*(\w+)\s*-\s*([-+.\deE]+)\s*,\s*0(?:\.0*)?\s*\)")
_BELOW = re.compile(r"greatest\(\s*([-+.\deE]+)\s*-\s*(\w+)\s*,\s*0(?:\.0*)?\s*\)")


def declared_bands(dataset: Dataset, spec: Spec) -> tuple[Band, ...]:
    """Limits of observations that the costs of a ``plant.toml`` declare.

    A cost per step ``greatest(PRESSURE - 2895, 0)`` with the limit 5 is a limit of 2900 for the
    pressure. A cost of another form gives no limit for a single observation.
    """
    texts = {
        str(cost.get("name")): str(cost.get("expression"))
        for cost in _configuration(dataset).get("cost", ())
    }
    observed = {channel.name for channel in spec.obs}
    bands = []
    for channel in spec.cost:
        text = texts.get(channel.name, "").strip()
        above, below = _ABOVE.fullmatch(text), _BELOW.fullmatch(text)
        if channel.per != "step" or not np.isfinite(channel.limit):
            continue
        if above and above[1] in observed:
            bands.append(Band(above[1], -np.inf, float(above[2]) + channel.limit))
        if below and below[2] in observed:
            bands.append(Band(below[2], float(below[1]) - channel.limit, np.inf))
    return tuple(bands)


def shown_channels(
    dataset: Dataset, spec: Spec, loops: Sequence[str], bands: Sequence[Band]
) -> tuple[str, ...]:
    """Observations of interest: those controlled by loops, limited, or part of the reward.

    Returns:
        At most four; the first three channels if nothing is declared.
    """
    configuration = _configuration(dataset)
    texts = [str(configuration.get("reward", {}).get("expression", ""))]
    texts += [str(cost.get("expression", "")) for cost in configuration.get("cost", ())]
    words = re.findall(r"\w+", " ".join(texts))
    observed = [channel.name for channel in spec.obs]
    wanted = [*loops, *(band.channel for band in bands), *words]
    shown = dict.fromkeys(name for name in wanted if name in observed)
    return tuple(shown)[:MAX_CHANNELS] or tuple(observed[:3])


def _configuration(dataset: Dataset) -> Mapping[str, Any]:
    """The ``plant.toml`` of a converted log; empty for any other."""
    configuration = dataset.attributes.get("provenance", {}).get("configuration", {})
    return configuration if isinstance(configuration, Mapping) else {}


# Baselines without learning that are fitted to the log.


ROWS_AT_ONCE = 65_536


class LoggedActions(Protocol):
    """Rows in memory or in a file, read for their observations and actions."""

    def actions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Observations and actions, one block at a time."""
        ...


Training: TypeAlias = LoggedActions | Transition


def classical_imitators(training: Training, spec: Spec) -> dict[str, Policy]:
    """Baselines without learning: the mean logged action, and the best linear feedback.

    Args:
        training: Logged rows on the host, or in their file; read one block at a time.
        spec: Action channels with their ranges.

    Returns:
        ``"mean action"``, and ``"linear feedback"``: least squares of the logged action on the
        observation, clipped to the range.
    """
    obs_mean, action_mean, slope = _least_squares(training)
    ends = [jnp.asarray(end, jnp.float32) for end in (lows(spec.action), highs(spec.action))]
    numbers = [jnp.asarray(x, jnp.float32) for x in (-slope.T, obs_mean, action_mean)]
    return {
        MEAN: ConstantPolicy(numbers[2]),
        LINE: StateFeedback(*numbers, *ends),
    }


def _least_squares(training: Training) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean observation, mean action and the slope between them, by QR block after block."""
    count, sums = 0, []
    for obs, action in _actions(training):
        count += len(obs)
        sums.append([part.sum(axis=0, dtype=np.float64) for part in (obs, action)])
    obs_mean, action_mean = (np.sum(part, axis=0) / count for part in zip(*sums, strict=True))
    upper: Any = np.zeros((0, len(obs_mean) + len(action_mean)))
    for obs, action in _actions(training):
        block = np.concatenate([obs - obs_mean, action - action_mean], axis=1)
        upper = np.linalg.qr(np.concatenate([upper, block]), mode="r")
    # The cut-off of lstsq for all rows, not just for the few rows of the factor.
    rcond = np.finfo(np.float64).eps * max(count, len(obs_mean))
    left, right = upper[:, : len(obs_mean)], upper[:, len(obs_mean) :]
    return obs_mean, action_mean, np.linalg.lstsq(left, right, rcond=rcond)[0]


def _actions(training: Training) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if not isinstance(training, Transition):
        yield from training.actions()
        return
    obs, action = np.asarray(training.obs), np.asarray(training.action)
    for start in range(0, len(obs), ROWS_AT_ONCE):
        block = slice(start, start + ROWS_AT_ONCE)
        yield obs[block], action[block]
