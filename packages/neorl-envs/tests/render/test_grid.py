import jax
import numpy as np
import pytest

from neorl_envs.render import grid_picture
from neorl_envs.worlds import treasure_hunt


def test_a_hunt_is_drawn_with_its_agents_and_a_legend() -> None:
    world = treasure_hunt("head", n_agents=2, size=(7, 9), spawn=0.5)
    state = world.begin_turn(world.reset(jax.random.key(0)), world.draw(jax.random.key(1)))
    figure = grid_picture(
        np.asarray(state.grid)[2:-2, 2:-2], np.asarray(state.places), title="turn 1"
    )
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["0", "1"]
    names = {text.get_text() for text in axes.get_legend().get_texts()}
    assert names == {"wall", "gem", "food", "bone", "agent"}
    assert axes.get_title() == "turn 1"
    with pytest.raises(ValueError, match="take the margin off a grid"):
        grid_picture(np.asarray(state.grid), np.asarray(state.places))
    with pytest.raises(ValueError, match="agents must stand within"):
        grid_picture(np.asarray(state.grid)[2:-2, 2:-2], np.array([[9, 1]]))
