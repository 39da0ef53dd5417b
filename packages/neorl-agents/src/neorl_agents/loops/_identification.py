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
SHORTEST = 0.1
"""Shortest lag in rows: what is faster cannot be seen."""
STEPS = 60
"""Steps of the refinement, at most."""
CALM = 1e-7
"""Share of the error by which a step must lower it, or the refinement ends."""


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
        delay: Dead time.
        noise: Autoregression of what the process does not explain, newest first.
        error: Mean squared error one row ahead, in units of the measurement's variance.
    """

    gain: float
    lag: float
    second: float
    delay: float
    noise: np.ndarray
    error: float


def moments(
    measurement: np.ndarray,
    output: np.ndarray,
    segment: np.ndarray,
    blocks: int = BLOCKS,
    *,
    halves: bool = False,
) -> Moments:
    """The moments of a record; rows without a whole history of finite numbers do not count.

    With ``halves`` there are two blocks: the first halves of the stretches of such rows, and the
    second ones.
    """
    scale = (float(np.nanstd(measurement)) or 1.0, float(np.nanstd(output)) or 1.0)
    y, u, now = scaled_rows(measurement, output, segment, scale)
    width = MEMORY + 1 + REACH + MEMORY + 1
    parts = np.array_split(now, blocks)
    if halves:
        both = [np.array_split(run, 2) for run in _runs(now)]
        parts = [np.concatenate(half) for half in zip(*both, strict=True)]
    products, rows = np.zeros((len(parts), width, width)), np.zeros(len(parts), int)
    for block, part in enumerate(parts):
        rows[block] = len(part)
        for run in _runs(part):
            if len(run):
                products[block] += _products(y, u, run[0], run[-1])
    return Moments(products, rows, scale)


def scaled_rows(
    measurement: np.ndarray, output: np.ndarray, segment: np.ndarray, scale: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scaled columns without their means, zero where a row is missing, and the rows to fit.

    Those have the row after them and the rows that it is fitted on, none of them missing.
    """
    y = (measurement - np.nanmean(measurement)) / scale[0]
    u = (output - np.nanmean(output)) / scale[1]
    missing = ~(np.isfinite(y) & np.isfinite(u))
    past = REACH + MEMORY
    breaks = np.cumsum(missing + np.append(False, np.diff(segment) != 0).astype(float))
    now = np.arange(past - 1, len(missing) - 1)
    now = now[(breaks[now + 1] == breaks[now - past + 1]) & ~missing[now - past + 1]]
    return np.where(missing, 0.0, y), np.where(missing, 0.0, u), now


def _runs(rows: np.ndarray) -> list[np.ndarray]:
    """The stretches of rows that follow one another."""
    return np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)


def _products(
    y: np.ndarray, u: np.ndarray, first: int, last: int
) -> Float[np.ndarray, "column column"]:
    """Sums of products of every two columns over a run of rows, its first to its last one.

    A column is the one before it, one row later. So only the newest columns are multiplied with all
    others; each further product is one of these with a row more at the start and one less at the
    end.
    """
    past = REACH + MEMORY
    new_y, new_u = y[first + 1 : last + 2], u[first : last + 1]
    late_y, late_u = y[first + 1 - MEMORY : last + 2], u[first - past + 1 : last + 1]
    # The columns in the row before the run, and in its last row; the oldest one is not needed.
    ends_y = y[first + 1 - MEMORY : first + 1][::-1], y[last + 2 - MEMORY : last + 2][::-1]
    ends_u = u[first - past + 1 : first][::-1], u[last - past + 2 : last + 1][::-1]

    def table(
        row: np.ndarray, column: np.ndarray, of_rows: tuple[Any, Any], of_columns: tuple[Any, Any]
    ) -> np.ndarray:
        moved = np.outer(of_rows[0], of_columns[0]) - np.outer(of_rows[1], of_columns[1])
        found = np.empty((len(column), len(row)))
        found[0], found[:, 0] = row, column
        for place in range(1, len(column)):
            found[place, 1:] = found[place - 1, :-1] + moved[place - 1]
        return found

    yy, uu = _lagged(new_y, late_y), _lagged(new_u, late_u)
    across = table(_lagged(new_u, late_y), _lagged(new_y, late_u), ends_u, ends_y)
    sums = [_lagged(np.ones(len(new_y)), late) for late in (late_y, late_u)]
    return np.block(
        [
            [table(yy, yy, ends_y, ends_y), across.T, sums[0][:, None]],
            [across, table(uu, uu, ends_u, ends_u), sums[1][:, None]],
            [sums[0][None], sums[1][None], np.full((1, 1), float(len(new_y)))],
        ]
    )


def _lagged(new: np.ndarray, late: np.ndarray) -> np.ndarray:
    """Sums of products of a series with another that reaches back further, by lag from 0."""
    return np.correlate(late, new, "valid")[::-1]


def centred(data: Moments, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Covariances of the columns over weighted blocks, and the number of rows."""
    total = np.tensordot(weights, data.products, axes=1)
    count = float(weights @ data.rows)
    mean = total[-1, :-1] / count
    return total[:-1, :-1] / count - np.outer(mean, mean), count


def step_answers(lag: Any, second: Any, time: np.ndarray) -> np.ndarray:
    """Answers of two lags of unit gain to a step, at times after it; zero before it."""
    second = np.clip(second, 1e-9, None)
    second = np.where(np.abs(lag - second) < 1e-4 * lag, lag * (1 - 1e-4), second)
    t = np.maximum(time, 0.0)
    return 1 - (lag * np.exp(-t / lag) - second * np.exp(-t / second)) / (lag - second)


def responses(lag: Any, second: Any, delay: Any) -> Float[np.ndarray, "model row"]:
    """Impulse responses of unit gain behind a hold, of lags and dead times in rows."""
    one, two, late = (np.atleast_1d(np.asarray(x, float))[:, None] for x in (lag, second, delay))
    return np.diff(step_answers(one, two, np.arange(REACH + MEMORY + 1) - late), axis=1)


class Grid(NamedTuple):
    """The lags to try, with their impulse responses."""

    lag: np.ndarray
    second: np.ndarray
    response: np.ndarray
    lags: np.ndarray
    ratios: tuple[float, ...]


def grid(lags: np.ndarray = LAGS, ratios: tuple[float, ...] = RATIOS) -> Grid:
    """Every first lag with every second one."""
    parts = [responses(lags, ratio * lags, np.zeros(len(lags))) for ratio in ratios]
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
    yy, uy, uu = _blocks(covariance)
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
            float(gain), float(tried.lag[lag]), float(tried.second[lag]), float(delays[delay]),
            noise, error,
        )  # fmt: skip
        noise = best_noise(covariance, gain * response[None])[0][0]
    assert best is not None
    return best


def _blocks(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariances of the measurements, of the outputs with them, and of the outputs."""
    y, u = slice(MEMORY + 1), slice(MEMORY + 1, None)
    return covariance[y, y], covariance[u, y], covariance[u, u]


def best_noise(
    covariance: np.ndarray, answers: Float[np.ndarray, "process row"]
) -> tuple[Float[np.ndarray, "process row"], Float[np.ndarray, " process"]]:
    """Autoregressions of the measurement less answers to the output, and their errors.

    Args:
        covariance: Of the columns of the moments.
        answers: Impulse response of each process.

    Returns:
        The noise that leaves each process the least mean squared error one row ahead, and it.
    """
    yy, uy, uu = _blocks(covariance)
    length = answers.shape[1]
    shifted = np.zeros((len(answers), MEMORY + 1, length))
    for row in range(MEMORY + 1):
        shifted[:, row, row:] = answers[:, : length - row]
    flat = shifted.reshape(-1, length)
    cross = (flat @ uy).reshape(len(answers), MEMORY + 1, MEMORY + 1)
    power = (flat @ uu).reshape(shifted.shape) @ shifted.transpose(0, 2, 1)
    left = yy - cross - cross.transpose(0, 2, 1) + power
    size = np.trace(left[:, 1:, 1:], axis1=1, axis2=2)[:, None, None] / MEMORY
    rest = left[:, 1:, 1:] + 1e-9 * size * np.eye(MEMORY)
    noise = np.linalg.solve(rest, left[:, 1:, :1])[..., 0]
    return noise, np.maximum(left[:, 0, 0] - np.sum(noise * left[:, 1:, 0], axis=1), 1e-12)


def profiled_errors(
    covariance: np.ndarray, numbers: Float[np.ndarray, "process 4"]
) -> Float[np.ndarray, " process"]:
    """Mean squared errors one row ahead, each with the best noise.

    Args:
        covariance: Of the columns of the moments.
        numbers: Gain, lag, second lag and delay of each process.
    """
    return best_noise(covariance, numbers[:, :1] * responses(*numbers[:, 1:].T))[1]


def starts(covariance: np.ndarray) -> list[np.ndarray]:
    """First guesses of the noise: that of the measurement alone, and that of a long ARX model."""
    alone = best_noise(covariance, np.zeros((1, REACH + MEMORY)))[0][0]
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
    best = []
    for ratio in tried.ratios:
        part = grid(tried.lags, (ratio,))
        found = min((fit(covariance, part, delays, one) for one in noises), key=lambda x: x.error)
        best.append(refined(covariance, found)[0])
    return min(best, key=lambda x: x.error)


def refined(covariance: np.ndarray, start: Lags) -> tuple[Lags, Float[np.ndarray, "column number"]]:
    """Process and noise that together leave the smallest error, by Levenberg and Marquardt.

    Fitting them in turn stops on the way where the feedback ties one to the other.

    Args:
        covariance: Of the columns of the moments.
        start: The guess; one lag stays one.

    Returns:
        The fit, and the derivatives of the weights of its error one row ahead, over gain, logarithm
        of the lag, that of the second lag where there is one, delay, and noise.
    """
    now, damping, calm = start, 1e-3, 0
    now = now._replace(error=error_of(covariance, now))
    slope = _derivatives(now)
    for _ in range(STEPS):
        onto = covariance @ slope
        curvature, downhill = slope.T @ onto, -(onto.T @ error_weights(now))
        scale = np.diag(curvature) + 1e-12
        while True:
            step = np.linalg.solve(curvature + damping * np.diag(scale), downhill)
            new = _moved(now, step)
            new = new._replace(error=error_of(covariance, new))
            if new.error < now.error or damping > 1e6:
                break
            damping *= 4
        if not new.error < now.error:
            break
        calm = calm + 1 if now.error - new.error < CALM * now.error else 0
        now, damping = new, max(damping / 8, 1e-9)
        slope = _derivatives(now)
        if calm == 3:
            break
    return now, slope


def _moved(model: Lags, step: np.ndarray) -> Lags:
    """A model after one step, at most a factor and two rows away, inside the range."""
    lag = float(np.clip(model.lag * np.exp(np.clip(step[1], -0.5, 0.5)), SHORTEST, INTEGRATES))
    second, place = 0.0, 2
    if model.second > 0:
        second = model.second * np.exp(np.clip(step[2], -0.7, 0.7))
        second, place = float(np.clip(second, 0.02 * lag, lag)), 3
    delay = float(np.clip(model.delay + np.clip(step[place], -2, 2), 0, MOST_DELAY))
    return Lags(
        model.gain + float(step[0]), lag, second, delay, model.noise + step[place + 1 :], np.nan
    )


def error_weights(model: Lags) -> np.ndarray:
    """Weights of the columns in the error one row ahead."""
    weights = np.append(1.0, -model.noise)
    return np.concatenate([weights, -_filtered(weights, model.gain * delayed(model))])


def _derivatives(model: Lags) -> Float[np.ndarray, "column number"]:
    h = 1e-3
    places = [(model.lag * np.exp(s * h), model.second, model.delay) for s in (1, -1)]
    if model.second > 0:
        places += [(model.lag, model.second * np.exp(s * h), model.delay) for s in (1, -1)]
    ends = model.delay + 0.05, max(model.delay - 0.05, 0.0)
    places += [(model.lag, model.second, end) for end in ends]
    near = responses(*zip(*places, strict=True))
    widths = [2 * h] * (len(places) // 2 - 1) + [ends[0] - ends[1]]
    unit = delayed(model)
    slopes = [unit, *(model.gain * (near[::2] - near[1::2]) / np.asarray(widths)[:, None])]
    weights = np.append(1.0, -model.noise)
    found = np.zeros((2 * MEMORY + REACH + 1, len(slopes) + MEMORY))
    for place, slope in enumerate(slopes):
        found[MEMORY + 1 :, place] = -_filtered(weights, slope)
    found[1 : MEMORY + 1, len(slopes) :] = -np.eye(MEMORY)
    for row in range(MEMORY):
        late = MEMORY + 1 + row + 1
        found[late:, len(slopes) + row] = model.gain * unit[: len(found) - late]
    return found


def _filtered(weights: np.ndarray, response: np.ndarray) -> np.ndarray:
    return np.convolve(weights, response)[: len(response)]


def error_of(covariance: np.ndarray, model: Lags) -> float:
    """Mean squared error one row ahead of a model on other rows.

    Args:
        covariance: Of the other rows.
        model: The model, scaled as the rows are.
    """
    column = error_weights(model)
    return float(column @ covariance @ column)


def delayed(model: Lags) -> np.ndarray:
    """The impulse response of a model of unit gain, with its dead time."""
    return responses(*model[1:4])[0]
