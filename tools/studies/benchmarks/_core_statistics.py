"""Cases of ``core.py``: statistics beside SciPy and rliable, aggregation beside Flower."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from _core_learning import Case, Variants, random


def cases() -> list[Case]:
    """Of the statistics and aggregates."""
    few, runs, coordinates = (30, 300, 3_000), (5, 20, 80), (1_000, 30_000, 1_000_000)
    return [
        Case("bootstrap of a mean, percentile", "scipy", few, "samples", _percentile, 0.2),
        Case("bootstrap of a mean, BCa", "scipy", few, "samples", _bca, 0.2),
        Case("Wilcoxon test", "scipy", (40, 400, 4_000), "pairs", _wilcoxon, 1e-2),
        Case("rank correlation", "scipy", few, "pairs", _rank_correlation, 1e-3),
        Case("interquartile mean, bootstrap", "rliable", runs, "runs of 10 tasks", _iqm, 0.2),
        Case("probability of improvement", "rliable", runs, "runs of 10 tasks", _improvement),
        Case("weighted mean", "flwr", coordinates, "coordinates of 15 clients", _weighted_mean),
        Case("coordinate median", "flwr", coordinates, "coordinates of 15 clients", _median),
        Case("trimmed mean", "flwr", coordinates, "coordinates of 15 clients", _trimmed),
        Case("krum", "flwr", coordinates, "coordinates of 15 clients", _krum),
        Case("bulyan", "flwr", coordinates, "coordinates of 15 clients", _bulyan),
    ]


def _against_scipy(ours: Callable, theirs: Callable, *args: Any) -> Variants:
    import jax

    compiled, plain = jax.jit(ours), [np.asarray(a, np.float64) for a in args]
    return {"ours": lambda: compiled(*args), "scipy": lambda: theirs(*plain)}


def _bootstrap(method: str, n: int) -> Variants:
    import jax
    from scipy import stats

    from neorl_core.statistics import bootstrap_interval

    key, rng = jax.random.key(0), np.random.default_rng(0)

    def ours(samples: Any) -> Any:
        interval = bootstrap_interval(samples, key, resamples=2000, method=method.lower())  # pyright: ignore[reportArgumentType]
        return interval.low, interval.high

    def theirs(samples: Any) -> Any:
        options = {"n_resamples": 2000, "method": method, "rng": rng}
        interval = stats.bootstrap((samples,), np.mean, **options).confidence_interval
        return interval.low, interval.high

    return _against_scipy(ours, theirs, 5 + random(n))


def _percentile(n: int) -> Variants:
    return _bootstrap("percentile", n)


def _bca(n: int) -> Variants:
    return _bootstrap("BCa", n)


def _wilcoxon(n: int) -> Variants:
    from scipy import stats

    from neorl_core.statistics import wilcoxon_test

    return _against_scipy(
        lambda a, b: wilcoxon_test(a, b).p_value,
        lambda a, b: stats.wilcoxon(a, b)[1],
        random(n),
        random(n, seed=1),
    )


def _rank_correlation(n: int) -> Variants:
    from scipy import stats

    from neorl_core.statistics import rank_correlation

    first = random(n)
    return _against_scipy(
        rank_correlation,
        lambda a, b: stats.spearmanr(a, b)[0],
        first,
        first + random(n, seed=1),
    )


def _iqm(runs: int) -> Variants:
    import jax

    from neorl_core.statistics import stratified_bootstrap_interval

    library = importlib.import_module("rliable.library")
    metrics = importlib.import_module("rliable.metrics")
    scores, key = 5 + random(runs, 10), jax.random.key(0)
    plain = {"scores": np.asarray(scores, np.float64)}

    @jax.jit
    def ours(scores: Any) -> Any:
        interval = stratified_bootstrap_interval(scores, key, resamples=2000)
        return interval.low, interval.high

    def point(scores: Any) -> Any:
        return np.array([metrics.aggregate_iqm(scores)])

    def theirs() -> Any:
        _, ends = library.get_interval_estimates(plain, point, reps=2000)
        return ends["scores"][0, 0], ends["scores"][1, 0]

    return {"ours": lambda: ours(scores), "rliable": theirs}


def _improvement(runs: int) -> Variants:
    import jax

    from neorl_core.statistics import probability_of_improvement

    metrics = importlib.import_module("rliable.metrics")
    scores = random(runs, 10), random(runs, 10, seed=1)
    plain, compiled = (
        [np.asarray(s, np.float64) for s in scores],
        jax.jit(probability_of_improvement),
    )
    return {
        "ours": lambda: compiled(*scores),
        "rliable": lambda: metrics.probability_of_improvement(*plain),
    }


def _aggregation(ours: Callable, theirs: Callable, coordinates: int) -> Variants:
    """``theirs`` gets Flower's rules and each client's arrays with its number of rows, all one."""
    import jax

    rules = importlib.import_module("flwr.server.strategy.aggregate")
    updates = random(15, coordinates)
    # A list of its own for every call: Flower's Bulyan empties what it is given.
    clients = [([row], 1) for row in np.asarray(updates)]
    compiled = jax.jit(lambda updates: ours(updates).value)
    return {"ours": lambda: compiled(updates), "flwr": lambda: theirs(rules, list(clients))[0]}


def _weighted_mean(coordinates: int) -> Variants:
    import jax.numpy as jnp

    from neorl_core.federated import weighted_mean

    ours, weights = weighted_mean, jnp.ones(15)
    return _aggregation(
        lambda u: ours(u, weights), lambda rules, c: rules.aggregate(c), coordinates
    )


def _median(coordinates: int) -> Variants:
    from neorl_core.federated import coordinate_median

    return _aggregation(coordinate_median, lambda rules, c: rules.aggregate_median(c), coordinates)


def _trimmed(coordinates: int) -> Variants:
    from neorl_core.federated import trimmed_mean

    return _aggregation(
        lambda u: trimmed_mean(u, num_byzantine=3),
        lambda rules, c: rules.aggregate_trimmed_avg(c, 0.2),
        coordinates,
    )


def _krum(coordinates: int) -> Variants:
    from neorl_core.federated import krum

    return _aggregation(
        lambda u: krum(u, num_byzantine=3),
        lambda rules, c: rules.aggregate_krum(c, 3, 0),
        coordinates,
    )


def _bulyan(coordinates: int) -> Variants:
    from neorl_core.federated import bulyan

    return _aggregation(
        lambda u: bulyan(u, num_byzantine=3),
        lambda rules, c: rules.aggregate_bulyan(c, 3, rules.aggregate_krum, to_keep=0),
        coordinates,
    )
