"""Lags and dead time of a loop's process from its rows, and how sure the rows make of them."""

import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

MEMORY = 30
"""Rows that the noise remembers."""
REACH = 120
"""Rows over which the process answers a move of the output."""
MOST_DELAY = 60
"""Longest dead time in rows."""
BLOCKS = 16
ROUNDS = 4
INTEGRATES = 4.0 * REACH
"""A lag of so many rows stands for a process that integrates."""
LAGS = np.append(np.geomspace(0.3, REACH / 2.5, 18), [REACH, INTEGRATES])
"""First lags of the grid in rows."""
RATIOS = (0.0, 0.3, 1.0)
"""Second lags as shares of the first."""
NEAR = np.geomspace(0.8, 1.25, 7)
"""Lags beside the best of the grid, as shares of it."""
NEAR_RATIOS = np.array([0.6, 1.0, 1.6])
"""Ratios beside it."""
REFINED = 5
"""How often the best is refined, at most."""


class Moments(NamedTuple):
    """Sums of products of every two columns, by block of rows.

    The columns are the measurement of the next row and of the ``MEMORY`` rows before it, the output
    of this row and of those before it, and one.

    Attributes:
        products: Shape ``(block, column, column)``.
        rows: Rows in each block.
        scale: Standard deviations of measurement and output, by which both are divided.
    """

    products: np.ndarray
    rows: np.ndarray
    scale: tuple[float, float]


class Lags(NamedTuple):
    """``K exp(-d s) / ((T s + 1) (T2 s + 1))`` with times in rows.

    Attributes:
        gain: Measured units per output unit.
        lag: The longer lag.
        second: The shorter lag.
        delay: Dead time, whole rows.
        noise: Autoregression of what the process does not explain, newest first.
        error: Mean squared error one row ahead, in units of the measurement's variance.
    """

    gain: float
    lag: float
    second: float
    delay: int
    noise: np.ndarray
    error: float


def moments(
    measurement: np.ndarray, output: np.ndarray, segment: np.ndarray, blocks: int = BLOCKS
) -> Moments:
    """The moments of a record; rows without a whole history of finite numbers do not count."""
    past = REACH + MEMORY
    scale = (float(np.nanstd(measurement)) or 1.0, float(np.nanstd(output)) or 1.0)
    y = (measurement - np.nanmean(measurement)) / scale[0]
    u = (output - np.nanmean(output)) / scale[1]
    missing = ~(np.isfinite(y) & np.isfinite(u))
    y, u = np.where(missing, 0.0, y), np.where(missing, 0.0, u)
    breaks = np.cumsum(missing + np.append(False, np.diff(segment) != 0).astype(float))
    now = np.arange(past - 1, len(y) - 1)
    whole = (breaks[now + 1] == breaks[now - past + 1]) & ~missing[now - past + 1]
    now = now[whole]
    products, rows = [], []
    for part in np.array_split(now, blocks):
        columns = np.concatenate(
            [
                y[part[:, None] + 1 - np.arange(MEMORY + 1)],
                u[part[:, None] - np.arange(past)],
                np.ones((len(part), 1)),
            ],
            axis=1,
        )
        products.append(columns.T @ columns)
        rows.append(len(part))
    return Moments(np.stack(products), np.asarray(rows), scale)


def stationary(measurement: np.ndarray, output: np.ndarray) -> np.ndarray:
    """Covariances of the columns from those of the lags, which is fast; scaled by no deviation.

    Args:
        measurement: Series without a gap, its mean taken off.
        output: Likewise.
    """
    past, size = REACH + MEMORY, len(measurement)
    length = 1 << (size + past).bit_length()
    y, u = (np.fft.rfft(column, length) for column in (measurement, output))

    def lagged(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.fft.irfft(np.conj(first) * second, length) / size

    yy, uu, uy = lagged(y, y), lagged(u, u), lagged(u, y)
    y_rows, u_rows = np.arange(MEMORY + 1), np.arange(past)
    # Column i of the measurement is at time 1 - i and column j of the output at time -j.
    across = uy[1 - y_rows[None, :] + u_rows[:, None]]
    return np.block(
        [
            [yy[y_rows[:, None] - y_rows[None, :]], across.T],
            [across, uu[u_rows[:, None] - u_rows[None, :]]],
        ]
    )


def centred(data: Moments, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Covariances of the columns over weighted blocks, and the number of rows."""
    total = np.tensordot(weights, data.products, axes=1)
    count = float(weights @ data.rows)
    mean = total[-1, :-1] / count
    return total[:-1, :-1] / count - np.outer(mean, mean), count


def responses(lags: np.ndarray, ratio: float) -> Float[np.ndarray, "lag row"]:
    """Impulse responses of unit gain behind a hold, without dead time."""
    rows = np.arange(REACH + MEMORY)
    first = np.exp(-1 / lags)[:, None]
    if ratio == 0:
        return (1 - first) * first**rows
    second = np.exp(-1 / (ratio * lags))[:, None]
    t = rows + 1.0
    if ratio == 1:
        step = 1 - (1 + t / lags[:, None]) * first**t
    else:
        step = 1 - (first**t - ratio * second**t) / (1 - ratio)
    return np.diff(step, axis=1, prepend=0.0)


class Grid(NamedTuple):
    """The lags to try, with their impulse responses."""

    lag: np.ndarray
    second: np.ndarray
    response: np.ndarray
    lags: np.ndarray
    ratios: tuple[float, ...]


def grid(lags: np.ndarray = LAGS, ratios: tuple[float, ...] = RATIOS) -> Grid:
    """Every first lag with every second one."""
    parts = [responses(lags, ratio) for ratio in ratios]
    return Grid(
        np.tile(lags, len(ratios)),
        np.concatenate([ratio * lags for ratio in ratios]),
        np.concatenate(parts),
        lags,
        ratios,
    )


@functools.lru_cache(maxsize=32)
def late_responses(
    lags: tuple[float, ...], ratios: tuple[float, ...], delays: tuple[int, ...]
) -> Float[np.ndarray, "place row"]:
    """The impulse responses of a grid behind every dead time, dead times first."""
    response = grid(np.asarray(lags), ratios).response
    late = np.zeros((len(delays), *response.shape), np.float32)
    for place, delay in enumerate(delays):
        late[place, :, delay:] = response[:, : response.shape[1] - delay]
    return late.reshape(-1, response.shape[1])


def fit(
    covariance: np.ndarray, tried: Grid, delays: np.ndarray, start: np.ndarray, rounds: int = ROUNDS
) -> Lags:
    """The lags that leave the smallest error, with the noise that goes with them.

    In turn the noise is fitted to what the process leaves, and the process to rows that the noise
    has whitened, over the whole grid.
    """
    yy, uy = covariance[: MEMORY + 1, : MEMORY + 1], covariance[MEMORY + 1 :, : MEMORY + 1]
    uu = covariance[MEMORY + 1 :, MEMORY + 1 :]
    late = late_responses(tuple(tried.lags), tried.ratios, tuple(int(d) for d in delays))
    noise, best = start, None
    for _ in range(rounds):
        weights = np.append(1.0, -noise)
        white = np.zeros((len(uu), len(uu)))
        for place, weight in enumerate(weights):
            np.fill_diagonal(white[:, place:], weight)
        whitened, onto = white @ uu @ white.T, white @ (uy @ weights)
        # Single precision chooses the place; the numbers at it are computed again.
        power = np.einsum("ij,ij->i", late @ whitened.astype(np.float32), late)
        explained = (late @ onto.astype(np.float32)) ** 2 / np.maximum(power, 1e-12)
        place = int(np.argmax(explained))
        response = late[place].astype(np.float64)
        gain = response @ onto / max(response @ whitened @ response, 1e-12)
        error = float(weights @ yy @ weights - gain * (response @ onto))
        delay, lag = divmod(place, len(tried.lag))
        if best is not None and error > best.error * (1 - 1e-6):
            break
        best = Lags(
            float(gain), float(tried.lag[lag]), float(tried.second[lag]), int(delays[delay]),
            noise, error,
        )  # fmt: skip
        noise = remaining_noise(yy, uy, uu, gain * response)
    assert best is not None
    return best


def remaining_noise(yy: Any, uy: Any, uu: Any, response: np.ndarray) -> np.ndarray:
    """Autoregression of the measurement less an answer to the output."""
    shifted = np.zeros((MEMORY + 1, len(response)))
    for row in range(MEMORY + 1):
        shifted[row, row:] = response[: len(response) - row]
    cross = shifted @ uy
    left = yy - cross - cross.T + shifted @ uu @ shifted.T
    size = np.trace(left[1:, 1:]) / MEMORY
    return np.linalg.solve(left[1:, 1:] + 1e-9 * size * np.eye(MEMORY), left[1:, 0])


def starts(covariance: np.ndarray) -> list[np.ndarray]:
    """First guesses of the noise: that of the measurement alone, and that of a long ARX model."""
    alone = remaining_noise(
        covariance[: MEMORY + 1, : MEMORY + 1],
        covariance[MEMORY + 1 :, : MEMORY + 1],
        covariance[MEMORY + 1 :, MEMORY + 1 :],
        np.zeros(REACH + MEMORY),
    )
    rest = covariance[1:, 1:]
    size = np.trace(rest) / len(rest)
    arx = np.linalg.solve(rest + 1e-6 * size * np.eye(len(rest)), covariance[1:, 0])[:MEMORY]
    return [alone, arx]


def best_fit(
    covariance: np.ndarray, tried: Grid, delays: np.ndarray, noises: list[np.ndarray]
) -> Lags:
    """The best fit from several guesses of the noise, refined between the places of the grid.

    The best of every ratio of the lags is refined, because on a coarse grid a wrong one may win.
    """
    step = int(np.diff(delays).min()) if len(delays) > 1 else 1
    between = np.arange(delays[0], delays[-1] + step)
    best = []
    for ratio in tried.ratios:
        part = grid(tried.lags, (ratio,))
        found = min((fit(covariance, part, delays, one) for one in noises), key=lambda x: x.error)
        for _ in range(REFINED):
            if found.lag >= INTEGRATES:
                break
            share = found.second / found.lag
            ratios = (0.0,) if ratio == 0 else tuple(np.clip(share * NEAR_RATIOS, 0.1, 1))
            near = between[np.abs(between - found.delay) <= 3]
            finer = fit(covariance, grid(found.lag * NEAR, ratios), near, found.noise)
            if finer.error > found.error * (1 - 1e-4):
                break
            found = finer
        best.append(found)
    return min(best, key=lambda x: x.error)


def error_of(covariance: np.ndarray, model: Lags) -> float:
    """Mean squared error one row ahead of a model on other rows.

    Args:
        covariance: Of the other rows.
        model: The model, scaled as the rows are.
    """
    response = model.gain * delayed(model)
    weights = np.append(1.0, -model.noise)
    white = np.convolve(weights, response)[: len(response)]
    column = np.concatenate([weights, -white])
    return float(column @ covariance @ column)


def delayed(model: Lags) -> np.ndarray:
    """The impulse response of a model of unit gain, with its dead time."""
    ratio = model.second / model.lag
    response = responses(np.array([model.lag]), ratio)[0]
    return np.append(np.zeros(model.delay), response)[: len(response)]
