import jax
import numpy as np
import pytest

from neorl_core import Transition
from neorl_envs import Dataset
from neorl_envs.plants import ChemicalReactor
from neorl_envs.render import picture, png, trends


def test_trends_show_limits_inputs_and_costs(env: ChemicalReactor, log: Dataset) -> None:
    figure = trends(env.spec, log.episode(0), bands=env.bands(), title="100/1500")
    # Three measurements with limits, three inputs, the costs.
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels[:4] == ["T_R\n[K]", "T_adiab_hat\n[K]", "P\n[bar]", "feed\n[kg/h]"]
    assert len(labels) == 7
    assert figure.axes[-1].get_xlabel() == "time [h]"
    image = picture(figure)
    assert image.dtype == np.uint8
    assert image.ndim == 3
    assert image.shape[2] == 3
    assert len(np.unique(image)) > 20
    assert png(figure).startswith(b"\x89PNG")


def test_every_measurement_is_shown_where_no_limit_is_known(toy: Dataset) -> None:
    figure = trends(toy.spec, toy.episode(2), bands={})
    assert len(figure.axes) == 2 + 1 + 1
    assert figure.axes[-1].get_xlabel() == "time [s]"


def test_an_empty_trajectory_is_an_empty_picture(env: ChemicalReactor, log: Dataset) -> None:
    nothing: Transition = jax.tree.map(lambda column: column[:0], log.episode(0))
    assert picture(trends(env.spec, nothing, bands=env.bands())).ndim == 3


def test_an_unknown_channel_is_refused(env: ChemicalReactor, log: Dataset) -> None:
    with pytest.raises(ValueError, match="no observed channel is called 'T_X'; expected one of"):
        trends(env.spec, log.episode(0), bands={"T_X": (0.0, 1.0)})
