"""Rows of a dataset out of stretches of time: where episodes end, what is masked and why."""

import dataclasses
import itertools
from collections import Counter
from typing import Any

import numpy as np

from neorl_envs.plant_logs._configuration import BEFORE, OBSERVED, PlantLog
from neorl_envs.plant_logs._expressions import Expression
from neorl_envs.plant_logs._grid import Piece


@dataclasses.dataclass(frozen=True)
class Rules:
    """The expressions of a configuration, read once."""

    reward: Expression
    costs: tuple[Expression, ...]
    running: Expression | None
    trip: Expression | None


def rules(config: PlantLog, source: str) -> Rules:
    """Reads every expression.

    Raises:
        InputError: Naming file, key and what is wrong.
    """
    names = [tag.name for tag in config.numbers]
    names += [BEFORE + name for name in names]

    def read(text: str, key: str) -> Expression:
        return Expression(text, names, f"{source}: {key}")

    conditions = {
        key: read(text, f"episodes.{key}") if (text := getattr(config.episodes, key)) else None
        for key in ("running", "trip")
    }
    return Rules(
        reward=read(config.reward.expression, "reward.expression"),
        costs=tuple(read(c.expression, f"cost {c.name!r}") for c in config.costs),
        **conditions,
    )


def piece_rows(
    part: Piece, config: PlantLog, rule: Rules, counts: Counter[str]
) -> dict[str, np.ndarray] | None:
    """The rows of one stretch.

    Args:
        part: All tags on the grid.
        config: The configuration.
        rule: Its expressions.
        counts: Counts rows by why they are masked or left out.

    Returns:
        Columns of a dataset, episodes already cut, or ``None`` where nothing is left.
    """
    if len(part.at) < 2:
        counts["samples without a successor"] += len(part.at)
        return None
    block, tripped = _blocks(part, config, rule)
    columns = _columns(part, config, rule, block)
    now, then = block[:-1], block[1:]
    trips = tripped[1:] & (now >= 0)
    usable = (now >= 0) & ((then == now) | trips)
    counts["rows in shutdown or between batches"] += int((~usable).sum())
    terminated = usable & trips
    ended = terminated | ~np.append(usable[1:], False) | _cuts(part, config)
    ended = (ended | _length_ends(ended & usable, usable, config.episodes.length)) & usable
    known = _known(columns, usable, config, counts)
    kept = _without_unknown_ends(usable, ended, terminated, known, counts)
    if not kept.any():
        return None
    # What is left out ends the row above it.
    ended = (ended | ~np.append(kept[1:], False)) & kept
    follows = ended | np.append(np.isfinite(columns["action"][1:]).all(axis=1), False)
    counts["masked: next action unknown"] += int((kept & known & ~follows).sum())
    flags = {"terminated": terminated, "truncated": ended & ~terminated, "mask": known & follows}
    return {name: column[kept] for name, column in {**columns, **flags}.items()}


def _blocks(part: Piece, config: PlantLog, rule: Rules) -> tuple[np.ndarray, np.ndarray]:
    """A number for every stretch of plant life a sample belongs to, -1 for none; and trips."""
    conditions = part.before_and_now()
    n = len(part.at)
    alive, tripped = np.ones(n, np.bool_), np.zeros(n, np.bool_)
    if rule.running is not None:
        alive &= np.nan_to_num(rule.running(conditions), nan=0.0) != 0
    if rule.trip is not None:
        tripped = np.nan_to_num(rule.trip(conditions), nan=0.0) != 0
        alive &= ~tripped
    new = np.zeros(n, np.bool_)
    for tag in config.of_role("batch"):
        batch = part.values[tag.name]
        alive &= ~np.isnan(batch)
        new[1:] |= batch[1:] != batch[:-1]
    new[1:] |= alive[1:] != alive[:-1]
    return np.where(alive, np.cumsum(new), -1), tripped


def _cuts(part: Piece, config: PlantLog) -> np.ndarray:
    """Rows behind which a mode changed."""
    cut = np.zeros(len(part.at) - 1, np.bool_)
    if config.episodes.mode_change:
        for tag in config.of_role("mode"):
            mode = np.nan_to_num(part.values[tag.name], nan=-1.0)
            cut |= mode[1:] != mode[:-1]
    return cut


def _columns(
    part: Piece, config: PlantLog, rule: Rules, block: np.ndarray
) -> dict[str, np.ndarray]:
    steps = part.of_steps(config)
    obs = _observations(part, config, block)
    modes = _manual(part, config)
    setpoints = config.of_role("setpoint")
    costs = [cost(steps) for cost in rule.costs]
    optional: dict[str, np.ndarray] = {}
    if modes is not None:
        optional["mode"] = modes[:-1]
    if setpoints:
        optional["setpoint"] = _stack(part, setpoints)[:-1]
    reward = rule.reward(steps)
    return {
        "obs": obs[:-1],
        "action": _stack(part, config.of_role("manipulated"))[:-1],
        "reward": np.where(np.isfinite(reward), reward, np.nan),
        "cost": np.stack([np.where(np.isfinite(c), c, np.nan) for c in costs], axis=1)
        if costs
        else np.zeros((len(reward), 0)),
        "next_obs": obs[1:],
        "time": part.at[:-1] / 1e9,
        **optional,
    }


def _stack(part: Piece, tags: Any) -> np.ndarray:
    return np.stack([part.values[tag.name] for tag in tags], axis=1)


def _observations(part: Piece, config: PlantLog, block: np.ndarray) -> np.ndarray:
    """Observed tags now and at earlier times of the same stretch of plant life."""
    now = _stack(part, config.of_role(*OBSERVED))
    actions = _stack(part, config.of_role("manipulated"))
    parts = [now]
    for back in range(1, config.history.steps):
        same = np.zeros(len(now), np.bool_)
        same[back:] = block[back:] == block[:-back]
        for column in (now, actions) if config.history.actions else (now,):
            earlier = np.full_like(column, np.nan)
            earlier[back:] = column[:-back]
            parts.append(np.where(same[:, None], earlier, np.nan))
    return np.concatenate(parts, axis=1)


def _manual(part: Piece, config: PlantLog) -> np.ndarray | None:
    """Which manipulated variables are in manual; a mode that is unknown is manual."""
    modes = config.of_role("mode")
    if not modes:
        return None
    actions = [tag.name for tag in config.of_role("manipulated")]
    manual = np.zeros((len(part.at), len(actions)), np.bool_)
    for tag in modes:
        automatic = part.values[f"{tag.name} is automatic"] == 1
        for i, name in enumerate(actions):
            if not tag.of or name in tag.of:
                manual[:, i] |= ~automatic
    return manual


def _known(
    columns: dict[str, np.ndarray], usable: np.ndarray, config: PlantLog, counts: Counter[str]
) -> np.ndarray:
    """Rows of which everything is known."""
    known = np.ones(len(usable), np.bool_)
    for name in ("obs", "action", "next_obs", "reward", "cost"):
        good = np.isfinite(columns[name].reshape(len(usable), -1)).all(axis=1)
        counts[f"masked: {name} unknown"] += int((usable & known & ~good).sum())
        known &= good
    if config.episodes.manual == "mask" and "mode" in columns:
        manual = columns["mode"].any(axis=1)
        counts["masked: in manual"] += int((usable & known & manual).sum())
        known &= ~manual
    return known


def _length_ends(ended: np.ndarray, usable: np.ndarray, length: int) -> np.ndarray:
    """Every so many rows of an episode one end more."""
    if not length:
        return np.zeros(len(ended), np.bool_)
    starts = np.append(True, ended[:-1] | ~usable[:-1])
    first = np.maximum.accumulate(np.where(starts, np.arange(len(ended)), 0))
    return usable & ((np.arange(len(ended)) - first) % length == length - 1)


def _without_unknown_ends(
    usable: np.ndarray,
    ended: np.ndarray,
    terminated: np.ndarray,
    known: np.ndarray,
    counts: Counter[str],
) -> np.ndarray:
    """Rows without those at both ends of an episode that say nothing; a trip stays."""
    kept = usable.copy()
    starts = np.append(True, ended[:-1] | ~usable[:-1]) & usable
    bounds = np.append(np.flatnonzero(starts), len(usable))
    for start, end in itertools.pairwise(bounds):
        rows = np.arange(start, end)[usable[start:end]]
        if not known[rows].any():
            kept[rows] = False
            continue
        said = np.flatnonzero(known[rows] | terminated[rows])
        kept[rows[: said[0]]] = False
        kept[rows[said[-1] + 1 :]] = False
    counts["left out: unknown at an end of an episode"] += int((usable & ~kept).sum())
    return kept
