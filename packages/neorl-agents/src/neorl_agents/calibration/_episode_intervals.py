"""Intervals of a statistic over rows if only whole episodes are independent."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from neorl_core import InputError
from neorl_core.statistics import DEFAULT_LEVEL


def episode_interval(
    statistic: Callable[..., float],
    episode: Int[np.ndarray, " row"],
    *columns: np.ndarray,
    replicates: int = 500,
    level: float = DEFAULT_LEVEL,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile interval of a bootstrap of whole episodes.

    Every replicate samples as many episodes as there are, with replacement; all rows of an episode
    are weighted by how often it was sampled. Replicates for which the statistic is NaN are ignored.

    Args:
        statistic: ``statistic(*columns, weight)``, such as
            ``neorl_core.statistics.area_under_roc``.
        episode: Index of the episode of every row.
        *columns: Inputs of the statistic, one entry per row.
        replicates: Number of bootstrap samples of episodes.
        level: Coverage, in (0, 1).
        seed: Seed of the samples.

    Returns:
        Lower and upper limit; NaN if the statistic is NaN in every replicate.

    Raises:
        InputError: If there are fewer than two episodes.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> episode, x = np.repeat(np.arange(50), 4), rng.normal(size=200)
        >>> low, high = episode_interval(lambda x, w: x @ w / w.sum(), episode, x)
        >>> low < 0 < high
        True

    Source: Field and Welsh, Bootstrapping clustered data, 2007.
    """
    _, index = np.unique(np.asarray(episode), return_inverse=True)
    count = int(index.max(initial=-1)) + 1
    if count < 2:
        raise InputError(f"an interval needs at least two episodes, got {count}; record more")
    rng = np.random.default_rng(seed)
    resamples = rng.multinomial(count, np.full(count, 1 / count), size=replicates).astype(
        np.float64
    )
    values = np.array([statistic(*columns, weight[index]) for weight in resamples])
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
