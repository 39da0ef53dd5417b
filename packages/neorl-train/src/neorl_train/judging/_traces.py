"""Selects the few episodes that are kept row by row for inspection."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from neorl_core import Policy, Spec, as_arrays
from neorl_envs import Dataset
from neorl_train.judging._results import (
    BEST,
    HARDEST,
    LOWEST,
    MEDIAN,
    TYPICAL,
    WORST,
    Band,
    Episodes,
    Stretch,
    Trace,
    limited_quantity,
)
from neorl_train.judging._rollouts import Rollout
from neorl_train.judging._shadow import shadow

MAX_FURTHER, MAX_NUMBERS = 8, 200_000
"""Number of additional episodes, and the most numbers that the trace file may contain for them."""


def select_starts(episodes: Episodes, spec: Spec) -> dict[str, int]:
    """Starts to show: the median return, the lowest return, and the one nearest its limits.

    Args:
        episodes: Paired episodes of the candidate.
        spec: Cost channels with their limits.

    Returns:
        Label and number of each start. The last label is omitted if there is no cost, or its start
        was already chosen.
    """
    order = np.argsort(episodes.returns, kind="stable")
    chosen = {TYPICAL: int(order[(len(order) - 1) // 2]), LOWEST: int(order[0])}
    if spec.n_cost:
        hardest = int(np.argmax(_margin_used(episodes, spec)))
        if hardest not in chosen.values():
            chosen[HARDEST] = hardest
    return chosen


def further_starts(
    gains: Float[np.ndarray, " episode"], chosen: Collection[int], spec: Spec
) -> list[int]:
    """Additional starts to keep, spread evenly from the largest loss to the largest gain.

    At most eight, and at most about 200,000 numbers in their rows.
    """
    width = spec.n_obs + 2 * spec.n_action + spec.n_cost + 2
    available = MAX_NUMBERS // (2 * spec.horizon * width) - len(chosen)
    rest = [int(start) for start in np.argsort(gains, kind="stable") if int(start) not in chosen]
    count = min(MAX_FURTHER, available, len(rest))
    if count < 1:
        return []
    positions = np.unique(np.linspace(0, len(rest) - 1, count).round().astype(int))
    return [rest[position] for position in positions]


def _margin_used(episodes: Episodes, spec: Spec) -> Float[np.ndarray, " episode"]:
    """Constraint margin used: the largest limited cost over its limit (over 1 where that is 0)."""
    used = np.zeros(episodes.count)
    for i, channel in enumerate(spec.cost):
        cost = np.nan_to_num(limited_quantity(episodes, spec, i), nan=np.inf)
        used = np.maximum(used, cost / (channel.limit or 1.0))
    return used


def trace_of(
    rollout: Rollout, row: int, *, label: str, policy: str, guarded: bool, start: int
) -> Trace:
    """Row ``row`` of a rollout on the host, trimmed to the length of its episode."""
    episode: Any = jax.tree.map(lambda column: np.asarray(column[row]), rollout)
    length = int(episode.mask.sum())
    return Trace(
        label=label,
        policy=policy,
        guarded=guarded,
        start=start,
        obs=np.concatenate([episode.first_obs[None], episode.obs[:length]]).astype(np.float64),
        action=episode.action[:length].astype(np.float64),
        applied=episode.applied[:length].astype(np.float64),
        reward=episode.reward[:length].astype(np.float64),
        cost=episode.cost[:length].astype(np.float64),
        flags=episode.flags[:length].astype(np.int64),
    )


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
    order = [c.name for c in dataset.spec.obs]
    shown = [order.index(channel) for channel in channels]
    selected = []
    for row, (label, span) in enumerate(chosen.items()):
        (begin, end), lead = spans[span], spans[span, 0] - warm_up_starts[span] + 1
        window = slice(lead, lead + end - begin)
        low, high = _coverage(dataset, begin, end)
        stamp = np.nan if dataset.time is None else float(dataset.time[begin])
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
