"""Single figures of a run, for a notebook or a file."""

import os
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_train.judging._results import TYPICAL, Evaluation
from neorl_train.pages._inputs import read_inputs
from neorl_train.pages.figures import _style
from neorl_train.pages.figures._learning import learning_curves
from neorl_train.pages.figures._trends import trends
from neorl_train.pages.sections._pictures import learning_panels, other_policy


def plot_episode(evaluation: Evaluation, label: str = TYPICAL) -> Any:
    """One episode of the guarded candidate, with the reference controller in the background.

    Args:
        evaluation: Evaluation on a plant.
        label: Which of the stored episodes: ``"typical"``, ``"lowest return"`` or ``"closest to the
            limits"``, or one of those between the largest loss and the largest gain, such as
            ``"start 12"``.

    Returns:
        A ``matplotlib.figure.Figure``.

    Raises:
        InputError: If no episode with that label was stored, or matplotlib is missing.
    """
    _require_matplotlib()
    candidate = evaluation.tables.candidate
    traces = {trace.label: trace for trace in evaluation.traces if trace.policy == candidate}
    if label not in traces:
        labels = ", ".join(traces) or "none, because there was no simulator to run a policy in"
        raise InputError(f"no episode {label!r} was stored; stored episodes: {labels}")
    trace = traces[label]
    reference = other_policy(evaluation.traces, trace)
    return _style.draw_styled(trends, trace, reference, evaluation.tables.spec, evaluation.bands)


def plot_learning(run: str | os.PathLike[str]) -> Any:
    """Validation results of a run's policies during training, by algorithm and seed.

    Args:
        run: Directory of an evaluated run.

    Returns:
        A ``matplotlib.figure.Figure``.

    Raises:
        InputError: If a file is missing or damaged, nothing was recorded, or matplotlib is missing.
    """
    _require_matplotlib()
    inputs = read_inputs(Path(run))
    panels = learning_panels(inputs)
    if not panels:
        raise InputError(
            f"{run} has no records of its training, so there is no learning curve to draw"
        )
    return _style.draw_styled(learning_curves, inputs.validations, panels)


def _require_matplotlib() -> None:
    if not _style.installed():
        raise InputError(f'pictures need matplotlib: python -m pip install "{_style.EXTRA}"')
