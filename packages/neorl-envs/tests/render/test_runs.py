"""Animations and comparisons of runs."""

import errno
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from matplotlib.animation import PillowWriter
from PIL import Image

from neorl_envs import Dataset
from neorl_envs.render import animate, compare, picture


@pytest.mark.nightly
def test_an_animation_grows_in_fixed_axes(env: Any, log: Dataset, tmp_path: Path) -> None:
    path = animate(
        env.spec, log.episode(0), tmp_path / "run.gif", bands=env.bands(), frames=4, fps=10
    )
    with Image.open(path) as gif:
        assert gif.n_frames == 4
        assert gif.info["duration"] == 100
        frames = []
        for i in range(4):
            gif.seek(i)
            frames.append(np.asarray(gif.convert("RGB")).astype(int))
    assert len({frame.shape for frame in frames}) == 1
    # More is drawn from frame to frame, and what was drawn stays where it was.
    for before, after in itertools.pairwise(frames):
        assert (before != after).any()
        ink, kept = before.sum(axis=2) < 400, after.sum(axis=2) < 400
        assert (ink & ~kept).sum() < 0.02 * ink.sum()
        assert kept.sum() > ink.sum()
    nothing: Any = jax.tree.map(lambda column: column[:0], log.episode(0))
    with pytest.raises(ValueError, match="needs at least one step"):
        animate(env.spec, nothing, tmp_path / "a.gif", bands={})
    with pytest.raises(ValueError, match="frames and fps must be at least 1, got 0 and 5"):
        animate(env.spec, log.episode(0), tmp_path / "a.gif", bands={}, frames=0)
    assert not (tmp_path / "a.gif").exists()


def test_an_animation_replaces_a_file_only_when_it_is_complete(
    env: Any, log: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(writer: PillowWriter) -> None:
        Path(writer.outfile).write_bytes(b"GIF89a")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PillowWriter, "finish", full_disk)
    path = tmp_path / "run.gif"
    path.write_bytes(b"the last one")
    with pytest.raises(OSError, match="No space left on device"):
        animate(env.spec, log.episode(0), path, bands=env.bands(), frames=1)
    assert path.read_bytes() == b"the last one"
    assert list(tmp_path.iterdir()) == [path]


def test_runs_beside_each_other(env: Any, log: Dataset) -> None:
    runs = {"first": log.episode(0), "second": log.episode(3)}
    figure = compare(env.spec, runs, weights=env.penalty_weights(), unit=env.reward_unit)
    points = figure.axes[0].lines
    weights = np.asarray([env.penalty_weights()[c.name] for c in env.spec.cost])
    for point, run in zip(points, runs.values(), strict=True):
        assert point.get_xdata()[0] == pytest.approx(float(weights @ run.cost.sum(axis=0)))
        assert point.get_ydata()[0] == pytest.approx(float(run.reward.sum()), rel=1e-6)
    assert len(np.unique(picture(figure))) > 20
    with pytest.raises(ValueError, match="no cost is called 'heat'; expected one of"):
        compare(env.spec, runs, weights={"heat": 1.0}, unit="points")
    with pytest.raises(ValueError, match="nothing to compare"):
        compare(env.spec, {}, weights={}, unit="points")
