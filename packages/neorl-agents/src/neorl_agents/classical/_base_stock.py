"""Base-stock levels for inventories, from a log."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from neorl_agents.classical._design import f32
from neorl_agents.classical._task import FittedController, Log, Task, checked_log, leading
from neorl_core import InputError, Spec, Transition, highs, lows
from neorl_core.control import BaseStock
from neorl_core.infrastructure import require_settings, setting, unknown_name

LEAST_WINDOWS = 30


@dataclasses.dataclass(frozen=True)
class Item:
    """One stock-keeping point of an inventory.

    Attributes:
        order: Name of the action channel that orders it.
        position: Contribution of each observation channel to its inventory position: 1 for stock on
            hand and on order, -1 for backorders.
        on_hand: Name of the observation channel of stock on hand minus backorders, from which the
            lead time is estimated; empty if ``lead_time`` is given.
        lead_time: Periods from an order to its arrival; -1 to estimate it from the log.
    """

    order: str
    position: Mapping[str, float]
    on_hand: str = ""
    lead_time: int = -1


@dataclasses.dataclass(frozen=True)
class BaseStockLevels:
    """Order-up-to levels from the demand in the log.

    The inventory position ``P`` changes only by orders and demand, so the demand of a period is
    ``order + P - next P``. The level of an item is the ``service`` quantile of the demand over its
    lead time plus one period. This base-stock level is the cheapest if ``service = owed / (owed +
    held)``, where both are costs per unit and period.

    Attributes:
        service: Fraction of periods without backorders.
        longest_lead: Longest lead time to try, in periods.
        rows: Number of rows of the log to use, from its start.

    Source: Zipkin, Foundations of inventory management, 2000, section 6.2 and 9.6.
    """

    service: float = setting(0.95, above=0, below=1)
    longest_lead: int = setting(30, low=0)
    rows: int = setting(100_000, low=1)

    def fit(self, log: Transition, spec: Spec, task: "Task | tuple[Item, ...]") -> FittedController:
        """Fits a level for each item; ``task`` holds an :class:`Item` for every action.

        Raises:
            InputError: If a setting is out of range, there is not one item per action, a channel is
                unknown, or the log has too few windows of a lead time.
        """
        require_settings(self)
        items = _items_by_action(task, spec)
        rows = leading(checked_log(log, spec), self.rows)
        position = np.stack([_weights(item.position, spec) for item in items])
        levels, report = [], []
        for i, item in enumerate(items):
            demand = rows.action[:, i] + (rows.obs - rows.next_obs) @ position[i]
            lead = item.lead_time if item.lead_time >= 0 else self._lead(rows, item, i, spec)
            total = _window_sums(demand, rows, lead + 1)
            if len(total) < LEAST_WINDOWS:
                raise InputError(
                    f"the log has {len(total)} windows of {lead + 1} periods for {item.order!r}, "
                    f"expected at least {LEAST_WINDOWS}; record longer episodes"
                )
            levels.append(float(np.quantile(total, self.service, method="inverted_cdf")))
            report.append(
                {"level": levels[-1], "lead_time": lead, "mean_demand": float(demand.mean())}
            )
        low, high = np.asarray(lows(spec.action)), np.asarray(highs(spec.action))
        policy = BaseStock(f32(np.asarray(levels)), f32(position), f32(low), f32(high))
        return FittedController(policy, {"items": report})

    def _lead(self, rows: Log, item: Item, act: int, spec: Spec) -> int:
        """The lag at which orders best explain the increase of the stock on hand."""
        stock = _weights({item.on_hand: 1.0}, spec)
        stock_change = (rows.next_obs - rows.obs) @ stock
        usable = rows.age >= self.longest_lead
        if usable.sum() < LEAST_WINDOWS:
            raise InputError(
                f"episodes of the log must have more than {self.longest_lead} rows without a gap "
                f"to estimate a lead time of up to {self.longest_lead} periods; reduce "
                f"longest_lead, or give the lead_time of {item.order!r}"
            )
        orders = rows.action[:, act]
        if np.ptp(orders[usable]) <= 1e-9 * np.max(np.abs(orders)):
            raise InputError(
                f"the orders of {item.order!r} never change in the log, so the lead time cannot be "
                "estimated; give its lead_time"
            )
        variances = [
            np.var((stock_change - np.roll(orders, lead))[usable])
            for lead in range(self.longest_lead + 1)
        ]
        return int(np.argmin(variances))


def _items_by_action(task: "Task | tuple[Item, ...]", spec: Spec) -> list[Item]:
    """The items in the order of the action channels."""
    if isinstance(task, Task):
        raise InputError(
            "base stock needs an Item for every action, but a Task with loops was given; give a "
            "tuple of neorl_agents.classical.Item"
        )
    by_order = {item.order: item for item in task}
    names = [channel.name for channel in spec.action]
    for name in by_order:
        if name not in names:
            raise unknown_name("action channel", name, names)
    missing = [name for name in names if name not in by_order]
    if missing or len(by_order) != len(task):
        raise InputError(
            f"each of the actions {', '.join(names)} needs exactly one item, got items for "
            f"{', '.join(item.order for item in task)}"
        )
    return [by_order[name] for name in names]


def _weights(position: Mapping[str, float], spec: Spec) -> np.ndarray:
    names = [channel.name for channel in spec.obs]
    weights = np.zeros(len(names))
    for name, weight in position.items():
        if name not in names:
            raise unknown_name("observation channel", name, names)
        weights[names.index(name)] = weight
    return weights


def _window_sums(values: np.ndarray, rows: Log, periods: int) -> np.ndarray:
    """Sums over all windows of that many periods within a piece."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.flatnonzero(rows.age >= periods - 1) + 1
    return total[end] - total[end - periods]
