"""A Markov chain whose risks are known exactly, and logs of it.

Level 0 to 4, seen as five flags, action 0 or 1: up by one with a chance of ``0.3 + 0.4 a``, else
down. Arriving at 4 costs 1; arriving at 0 ends the episode with a chance of 0.2.
"""

import numpy as np

from neorl_core import Channel, CostChannel, Spec, Transition

SPEC = Spec(
    tuple(Channel(f"at {level}", "1", 0.0, 1.0) for level in range(5)),
    (Channel("pump", "1", 0.0, 1.0),),
    (CostChannel("full", "1", 0.0, "step"),),
    dt=1.0,
    horizon=40,
)
TOP, TRIP = 4, 0.2


def outcomes(level: int, action: int) -> list[tuple[float, int, bool]]:
    """Chance, next level and end of everything that may follow."""
    up = 0.3 + 0.4 * action
    above, below = min(level + 1, TOP), max(level - 1, 0)
    result = [(up, above, False)]
    if below == 0:
        return [*result, ((1 - up) * TRIP, 0, True), ((1 - up) * (1 - TRIP), 0, False)]
    return [*result, (1 - up, below, False)]


def exact(horizon: int, quantity: str, behaviour: tuple[float, float]) -> np.ndarray:
    """By dynamic programming: shape ``(level, action, horizon)``."""
    q = np.zeros((TOP + 1, 2, horizon + 1))
    for j in range(1, horizon + 1):
        value = q[:, :, j - 1] @ np.asarray(behaviour)
        for level in range(TOP + 1):
            for action in (0, 1):
                for chance, following, ended in outcomes(level, action):
                    x = float(following == TOP)
                    left = (1 - x) if quantity == "violation" else 1.0
                    after = 0.0 if ended else value[following]
                    q[level, action, j] += chance * (x + left * after)
    return q[:, :, 1:]


def proportional_rows(copies: int = 50) -> Transition:
    """Single rows, every outcome as often as it is likely: the log without its sampling error."""
    rows = [
        (level, action, following, ended)
        for level in range(TOP + 1)
        for action in (0, 1)
        for chance, following, ended in outcomes(level, action)
        for _ in range(round(copies * chance))
    ]
    level, action, following, ended = (np.array(column) for column in zip(*rows, strict=True))
    return _log(level, action, following, ended, np.ones(len(rows), bool))


def episodes(count: int, seed: int) -> Transition:
    """Episodes of at most 40 steps under a fair coin."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(count):
        level = int(rng.integers(0, TOP))
        for t in range(SPEC.horizon):
            action = int(rng.integers(0, 2))
            result = outcomes(level, action)
            choice = rng.choice(len(result), p=[chance for chance, _, _ in result])
            _, following, ended = result[choice]
            rows.append((level, action, following, ended, t == SPEC.horizon - 1))
            level = following
            if ended:
                break
    columns = (np.array(column) for column in zip(*rows, strict=True))
    return _log(*columns)


def flags(level) -> np.ndarray:
    """What is seen of levels."""
    return np.eye(TOP + 1, dtype=np.float32)[np.asarray(level)]


def _log(level, action, following, ended, last) -> Transition:
    f32 = lambda x: np.asarray(x, np.float32)[:, None]  # noqa: E731
    return Transition(
        flags(level),
        f32(action),
        np.zeros(len(level), np.float32),
        cost=f32(following == TOP),
        next_obs=flags(following),
        terminated=np.asarray(ended, bool),
        truncated=np.asarray(last, bool) & ~np.asarray(ended, bool),
    )
