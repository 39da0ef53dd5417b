"""Base-stock levels against the newsvendor's closed form."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import norm

from neorl_agents.classical import CLASSICAL, BaseStockLevels, Item, Loop, Task
from neorl_core import Channel, InputError, Spec

from .conftest import log_of

LEAD, MEAN, DEVIATION = 3, 20.0, 4.0
SPEC = Spec(
    (Channel("stock", "1", -500.0, 500.0), Channel("coming", "1", 0.0, 500.0)),
    (Channel("order", "1", 0.0, 100.0),),
    (),
    1.0,
    100,
)
ITEM = Item("order", {"stock": 1.0, "coming": 1.0}, on_hand="stock")


@pytest.fixture(scope="module")
def log():
    """Random orders that arrive after three periods; normal demand, what is short is owed."""
    rng = np.random.default_rng(0)
    episodes, length = 40, 100
    stock, coming = np.full(episodes, 100.0), np.zeros((episodes, LEAD))
    rows = []
    for _ in range(length):
        order = rng.uniform(0, 40, size=episodes)
        obs = np.stack([stock, coming.sum(axis=1)], axis=1)
        queue = np.concatenate([coming, order[:, None]], axis=1)
        stock = stock + queue[:, 0] - rng.normal(MEAN, DEVIATION, size=episodes)
        coming = queue[:, 1:]
        rows.append((obs, order[:, None], np.stack([stock, coming.sum(axis=1)], axis=1)))
    obs, order, later = (
        np.stack(part, axis=1).reshape(episodes * length, -1) for part in zip(*rows, strict=True)
    )
    return log_of(obs, order, later, length)


@pytest.mark.parametrize("service", [0.8, 0.95])
def test_the_level_is_the_newsvendor_quantile(log, service):
    fitted = BaseStockLevels(service=service, longest_lead=8).fit(log, SPEC, (ITEM,))
    item = fitted.report["items"][0]
    assert item["lead_time"] == LEAD
    np.testing.assert_allclose(item["mean_demand"], MEAN, rtol=0.02)
    wide = np.sqrt(LEAD + 1) * DEVIATION
    np.testing.assert_allclose(item["level"], norm.ppf(service, (LEAD + 1) * MEAN, wide), rtol=0.02)
    _, order = fitted.policy((), np.array([10.0, 30.0], np.float32))
    np.testing.assert_allclose(order, [item["level"] - 40.0], rtol=1e-6)


def test_no_window_of_demand_reaches_from_one_episode_into_the_next():
    """Ten are wanted in two periods of every episode, and twenty across its ends."""
    demand = np.tile([0.0, 10.0, 10.0, 0.0], 20)[:, None]
    log = log_of(np.full((80, 2), 30.0), demand, np.full((80, 2), 30.0), 2)
    item = dataclasses.replace(ITEM, on_hand="", lead_time=1)
    report = BaseStockLevels(service=0.99).fit(log, SPEC, (item,)).report["items"][0]
    assert report["level"] == 10.0


def test_the_level_is_a_demand_that_was_seen():
    """The least with which so large a share of the windows is served, not one in between."""
    demand = np.tile([4.0, 4.0, 4.0, 9.0], 20)[:, None]
    log = log_of(np.full((80, 2), 30.0), demand, np.full((80, 2), 30.0), 4)
    item = dataclasses.replace(ITEM, on_hand="", lead_time=0)
    for service, level in ((0.75, 4.0), (0.76, 9.0)):
        report = BaseStockLevels(service=service).fit(log, SPEC, (item,)).report["items"][0]
        assert report["level"] == level


def test_the_level_follows_the_unit(log):
    level = BaseStockLevels(longest_lead=8).fit(log, SPEC, (ITEM,)).report["items"][0]["level"]
    kilo = dataclasses.replace(
        SPEC,
        obs=tuple(dataclasses.replace(c, low=c.low / 1e3, high=c.high / 1e3) for c in SPEC.obs),
        action=(Channel("order", "k", 0.0, 0.1),),
    )
    small = log._replace(obs=log.obs / 1e3, next_obs=log.next_obs / 1e3, action=log.action / 1e3)
    other = BaseStockLevels(longest_lead=8).fit(small, kilo, (ITEM,)).report["items"][0]
    np.testing.assert_allclose(1e3 * other["level"], level, rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "items", "message"),
    [
        (BaseStockLevels(service=95.0), (ITEM,), r"service must be a number in \(0, 1\)"),
        (BaseStockLevels(longest_lead=200), (ITEM,), "more than 200 rows"),
        (BaseStockLevels(), (), "each of the actions order"),
        (BaseStockLevels(), (Item("odrer", {"stock": 1.0}),), "odrer.*order"),
        (BaseStockLevels(), (Item("order", {"stok": 1.0}, lead_time=1),), "stok.*stock"),
        (BaseStockLevels(), Task((Loop("stock", "order", 1.0),)), "needs an Item for every action"),
    ],
)
def test_what_cannot_be_fitted_is_refused(log, settings, items, message):
    with pytest.raises(InputError, match=message):
        settings.fit(log, SPEC, items)


def test_a_table_takes_controllers_from_outside():
    assert {"pid", "pid_imitation", "smith", "lqg", "mpc", "base_stock"} <= set(CLASSICAL)

    @dataclasses.dataclass(frozen=True)
    class NeedsMore:
        gain: float

        def fit(self, log, spec, task):
            raise NotImplementedError

    for entry, message in ((NeedsMore, "give a default to gain"), (3, "frozen dataclass")):
        with pytest.raises(InputError, match=message):
            CLASSICAL.register("test_wrong", entry)
