"""Pairs with modes that no input reaches, hidden by a rotation and by units."""

import jax
import numpy as np
import pytest

from neorl_core.linear_systems import (
    controllable,
    detectable,
    is_stable,
    observable,
    stabilisable,
)

COUNT = 50


def rotated(rng, n, reached, decays, spread):
    """``reached`` of ``n`` states see the input; the others decay or do not; then hidden."""
    a = rng.normal(size=(n, n))
    b = rng.normal(size=(n, 1))
    a[reached:, :reached] = b[reached:] = 0
    rest = a[reached:, reached:]
    if rest.size:
        radius = np.abs(np.linalg.eigvals(rest)).max()
        a[reached:, reached:] *= (0.9 if decays else 1.2) / radius
    turn, _ = np.linalg.qr(rng.normal(size=(n, n)))
    unit = 10.0 ** rng.uniform(-spread, spread, n)
    return (turn @ a @ turn.T) * unit[:, None] / unit, 1e-4 * (turn @ b) * unit[:, None]


def batch(n, hidden, decays, spread, dtype):
    rng = np.random.default_rng([n, hidden, decays])
    drawn = [rotated(rng, n, n - hidden, decays, spread) for _ in range(COUNT)]
    return [np.stack(part).astype(dtype) for part in zip(*drawn, strict=True)]


@jax.jit
@jax.vmap
def judged(a, b):
    return controllable(a, b), stabilisable(a, b)


@jax.jit
@jax.vmap
def judged_as_sensors(a, b):
    return observable(a.T, b.T), detectable(a.T, b.T)


def shares(judge, a, b):
    """The shares of pairs that are called controllable and stabilisable."""
    return [float(np.mean(answers)) for answers in judge(a, b)]


@pytest.mark.nightly
@pytest.mark.parametrize("n", [3, 6, 10])
def test_hidden_modes_are_found_and_others_are_not_suspected(n):
    """Kalman's matrix called 8 of 300 such pairs controllable at up to six states."""
    for hidden, decays in ((0, True), (1, True), (1, False), (2, False)):
        with jax.enable_x64(True):
            a, b = batch(n, hidden, decays, 3, np.float64)
            expected = [hidden == 0, hidden == 0 or decays]
            assert shares(judged, a, b) == expected
            if n == 6:
                assert shares(judged_as_sensors, a, b) == expected


def test_hidden_modes_are_found_in_float32():
    for hidden, decays in ((0, True), (1, True), (1, False)):
        a, b = batch(6, hidden, decays, 1, np.float32)
        actual = shares(judged, a, b)
        for share, expected in zip(actual, [hidden == 0, hidden == 0 or decays], strict=True):
            assert abs(share - expected) <= 0.05


@pytest.mark.nightly
def test_eager_and_compiled_judge_alike_and_of_nan_nothing_is_true():
    a, b = batch(6, 1, False, 1, np.float32)
    for function in (controllable, stabilisable):
        assert not function(a[0], b[0])
        assert not function(a[0], np.nan * b[0])
        assert not jax.jit(function)(a[0] * np.inf, b[0])
    assert not is_stable(a[0])


@pytest.mark.parametrize("mode", [1.0, -1.0, 1 + 1e-10, 1.5])
def test_a_mode_that_stays_must_be_reached_and_one_that_decays_need_not(mode):
    first = np.asarray([[1.0], [0.0]])
    with jax.enable_x64(True):
        assert not stabilisable(np.diag([0.5, mode]), first)
        assert stabilisable(np.diag([mode, 0.999]), first)
        assert not is_stable(np.diag([0.5, mode]))
        assert is_stable(np.diag([0.5, 1 - 1e-7]))


@pytest.mark.parametrize("function", [controllable, observable, stabilisable, detectable])
def test_no_pair_is_as_far_from_others_as_a_tolerance_that_is_none(function):
    judge = jax.jit(lambda tolerance: function(np.eye(2), np.eye(2), tolerance=tolerance))
    assert [bool(judge(number)) for number in (0.0, -1.0, np.nan, np.inf)] == [True] + [False] * 3
