r"""A supply chain of six stock points: orders on ten lanes to serve a seasonal market.

**Order of events** in a period (a day), as in or-gym's NetInvMgmt: orders are placed in whole
units, each limited by the initial stock and the capacity of its supplier; orders of one lead time
ago arrive (immediately for a lead time of 0); ordered units leave the supplier; demand and backlog
are served. The cash of a period is the sales minus raw materials, operation, holding of stocks and
pipelines, and backlog; prices between nodes cancel. The profit of a period is its cash plus the
change in worth of the units in stock and on the way:

$$r_t = \mathrm{cash}_t + W_t - W_{t-1}, \qquad W = \sum_n V_n\, \mathrm{stock}_n + \sum_l
\mathrm{on\ the\ way}_l$$

where a unit is worth what it has cost so far: raw material, operation and holding on the way, with
$V_n$ for the cheapest route to node n. Buying a unit without selling it therefore only exchanges
cash for stock, and selling off stocks before the last day does not pay: if the reference controller
stops ordering near the end, it gains 0.20 on 17.5 (the holding costs that it saves); with cash as
reward it would gain 0.83.

**Lanes** (supplier to receiver, lead time): 2-1 (5), 3-1 (3), 4-2 (8), 4-3 (10), 5-2 (9), 6-2
(11), 6-3 (12), 7-4 (0), 8-5 (2), 8-6 (0). Node 1 is the shop, 2 and 3 are distributors, 4, 5 and 6
are factories that make at most 90, 90 and 80 units a day, and 7 and 8 supply raw materials without
limit.

**Parameters** are in :class:`Constants`, each with unit and source. Lanes (except 7-5, which is
left out), prices and capacities are published. Our own choices are the season (20 a day on average,
30 % up and down in 30 days, with a random initial phase), closed lanes (2 % probability a day, for
5 to 10 days, during which no order is accepted), 60 days (or-gym has 30), the initial stocks
(or-gym has two and a half times as much in nodes 4 to 6), the randomisation of the mean demand (1.5
times the given spread) and the sharing of insufficient stock: every buyer gets the same fraction of
its order. With ``SupplyChain(legacy_allocation=True)``, the same stock is promised to several
buyers, as in or-gym, and can become negative.

**Measured (28).** Stocks of six nodes (-200 to 5000), the shop's backlog (0 to 4000), yesterday's
demand (0 to 64), units on the way on ten lanes (0 to 50 times the lead time) and units arriving
next on each (0 to 50), all counted exactly. The four channels of the lanes 7-4 and 8-6, which
deliver immediately, are always zero. It is not measured which lanes are closed.
**Manipulated (10).** An order on every lane, 0 to 50.

*Dead time.* Not declared for any channel: stocks and orders are counted daily, without delay, and
the lead times of the lanes are part of the physics.

**Objective.** The reward is the day's profit in units of 100 $, with stocks valued as above; with
`legacy_allocation` it is only cash, as in or-gym. Costs: ``inventory``, units in excess of 900 in
all stores, in hundreds, summed over the days (limit 5); ``delays``, the fraction of demand and
backlog that is not served, summed over the days (limit 15, the equivalent of fifteen days without
any sale). An episode ends only by truncation, after 60 days.

**Controllers.** ``base stock`` orders up to fixed levels. ``base stock with forecast`` (the
reference) adds multiples of yesterday's demand to the levels and includes downstream stocks in the
inventory position of the factories. Levels, shares and weights were tuned for the score by a
cross-entropy search over 15 generations of 150 candidates. The same search over constant orders
gives a lower score. :func:`bad_policy` orders raw materials at full rate and nothing else; it
violates both costs.

Source: Perez, Hubbs, Li, Grossmann, Processes 9:102, 2021; or-gym 0.5.0.
"""

from neorl_envs.plants.supply_chain._env import Rule as Rule
from neorl_envs.plants.supply_chain._env import bad_policy as bad_policy
from neorl_envs.plants.supply_chain._physics import Constants as Constants
from neorl_envs.plants.supply_chain._physics import Market as Market
from neorl_envs.plants.supply_chain._physics import MarketNoise as MarketNoise
from neorl_envs.plants.supply_chain._physics import Network as Network

__all__ = ["Constants", "Market", "MarketNoise", "Network", "Rule", "bad_policy"]
