"""Curves of training: dots where a learner was validated once, words where all were."""

import numpy as np
import pytest

from neorl_train.pages import _style
from neorl_train.pages._inputs import Curve, Inputs
from neorl_train.pages.sections._learning import Panel, learning_curves, learning_picture

pytest.importorskip("matplotlib", reason="the pictures need the extra 'report'")


@pytest.mark.parametrize("points", [1, 2])
def test_a_curve_of_one_point_is_a_dot(points):
    """One learner may be validated once beside others with a curve, and no line goes through it."""
    step, value = np.arange(1, points + 1) * 1000, np.full(points, 0.5)
    recorded = [Curve("loss", "iql", seed, step, value) for seed in (0, 1)]
    panel = Panel("loss", "loss", {}, float("nan"), logarithmic=False)
    figure = _style.draw_styled(learning_curves, recorded, [panel])
    drawn = figure.axes[0].get_lines()
    assert len(drawn) == 3
    assert all((line.get_marker() == "o") == (points == 1) for line in drawn)


def test_a_single_validation_is_a_sentence_and_no_picture(noisy, tmp_path):
    """The axes of a curve of one point showed a dot and a range that nobody could read."""

    def shown(steps):
        curves = [
            Curve("held_out_distance", "good", seed, np.array(steps), np.full(len(steps), value))
            for seed, value in ((0, 0.0123), (1, 0.0345))
        ]
        inputs = Inputs(
            run=tmp_path,
            evaluation=noisy.evaluation,
            verdict=noisy.verdict,
            record={},
            config="",
            constraints={},
            validations=curves,
            chunks=[],
            signs=[],
        )
        return learning_picture(inputs).text

    assert "<svg" in shown([2000, 4000])
    assert shown([2000]) == (
        "<p>Every policy was validated only once, after 2000 updates, so there is no curve to "
        "draw. Means over the seeds are: held-out distance: good 0.0234. For a curve, set "
        "checkpoints.interval to a tenth of training.updates.</p>"
    )
