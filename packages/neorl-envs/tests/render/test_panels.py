"""What is drawn of plants with many channels."""

from typing import Any

import jax
import numpy as np
import pytest

from neorl_core import InputError, Transition
from neorl_envs import environment_names, make
from neorl_envs.plants import SupplyChain
from neorl_envs.render import trends


def rows(env: Any, n: int = 3) -> Transition:
    """Rows of zeros: what is drawn does not depend on the numbers."""
    spec = env.spec
    never: Any = np.zeros(n, np.bool_)
    obs: Any = np.zeros((n, spec.n_obs))
    action: Any = np.zeros((n, spec.n_action))
    cost: Any = np.zeros((n, spec.n_cost))
    reward: Any = np.zeros(n)
    return Transition(
        obs=obs,
        action=action,
        reward=reward,
        cost=cost,
        next_obs=obs,
        terminated=never,
        truncated=never,
    )


def labels(env: Any, **options: Any) -> list[str]:
    figure = trends(env.spec, rows(env), bands=env.bands(), tracked=env.tracked, **options)
    return [axes.get_ylabel().split("\n")[0] for axes in figure.axes]


def test_channels_alike_share_a_panel() -> None:
    env = SupplyChain()
    shared = ["stock", "backlog", "demand", "pipeline", "arriving", "order", "cost"]
    assert labels(env) == shared
    figure = trends(env.spec, rows(env), bands={})
    stock = figure.axes[0]
    assert [line.get_label() for line in stock.lines] == list("123456")
    assert [line.get_label() for line in figure.axes[3].lines][:2] == ["2_to_1", "3_to_1"]
    assert len(figure.axes[3].lines) == 10
    grid = labels(make("PowerGrid-v0"))
    assert grid[:6] == ["frequency", "P", "Q", "P_mechanical", "V", "V_bus"]
    assert grid[-3:] == ["dP_ref", "dV_ref", "cost"]


def test_every_channel_or_some_of_them_where_asked() -> None:
    env = SupplyChain()
    every = labels(env, channels=("all",))
    assert every == [*(c.name for c in (*env.spec.obs, *env.spec.action)), "cost"]
    assert labels(env, channels=("demand", "stock_2")) == ["demand", "stock_2", "order", "cost"]
    with pytest.raises(InputError, match="'stok_2'; did you mean 'stock_2'"):
        labels(env, channels=("stok_2",))


def test_set_points_are_drawn_with_what_follows_them() -> None:
    furnace = make("SteelAnnealing-v0")
    assert labels(furnace) == ["T_strip_6", "fuel", "cost"]
    figure = trends(furnace.spec, rows(furnace), bands={}, tracked=furnace.tracked)
    assert next(line.get_label() for line in figure.axes[0].lines) == "setpoint"
    assert labels(make("CSTR-v0")) == ["C_A", "T", "T_c", "cost"]
    with pytest.raises(ValueError, match="no observed channel is called 'T_S'; expected one of"):
        trends(furnace.spec, rows(furnace), bands={}, tracked={"T_set": "T_S"})


@pytest.mark.parametrize("name", environment_names())
def test_a_picture_of_any_plant_has_few_panels(name: str) -> None:
    env: Any = make(name)
    drawn = labels(env)
    assert len(drawn) <= 14
    assert len(set(drawn)) >= len(drawn) - 1  # heats are measured and manipulated
    assert set(env.tracked) | set(env.tracked.values()) <= {c.name for c in env.spec.obs}


def test_nothing_is_drawn_of_an_empty_episode_of_many_channels() -> None:
    env = SupplyChain()
    nothing: Transition = jax.tree.map(lambda column: column[:0], rows(env))
    assert len(trends(env.spec, nothing, bands={}).axes) == 7
