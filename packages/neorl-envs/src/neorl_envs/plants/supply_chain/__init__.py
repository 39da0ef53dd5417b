r"""A supply chain of six stock points: orders on ten lanes against a seasonal market.

**Order of events** in a period (a day), as in or-gym's NetInvMgmt: orders are placed in whole
units, each at most the stock that its supplier has at the start and its capacity; what was
ordered a lead time ago arrives (a lead time of 0 at once); what is ordered leaves the supplier;
demand and backlog are served. Cash is sales less raw materials, operation, holding of stocks
and of pipelines, and backlog; prices between nodes cancel. The profit of a period is its cash and
what the units in stock and on the way have gained or lost in worth:

$$r_t = \mathrm{cash}_t + W_t - W_{t-1}, \qquad W = \sum_n V_n\, \mathrm{stock}_n + \sum_l
\mathrm{on\ the\ way}_l$$

at what a unit has cost to come there: raw material, operation and the way, $V_n$ on the cheapest of
several ways. So a unit bought and not sold is an exchange of cash for stock, and to sell off before
the last day does not pay: the reference with its orders cut off late gains 0.20 of 17.5 (holding
costs that it saves), where cash alone would give it 0.83.

**Lanes** (supplier to receiver, lead time): 2-1 (5), 3-1 (3), 4-2 (8), 4-3 (10), 5-2 (9), 6-2
(11), 6-3 (12), 7-4 (0), 8-5 (2), 8-6 (0). Node 1 is the shop, 2 and 3 distribute, 4, 5 and 6 make
at most 90, 90 and 80 a day, 7 and 8 are raw materials without limit.

**Parameters** stand in :class:`Constants`, each with unit and source; lanes, prices and capacities
are published, without the lane 7-5. Our own choice are the season (20 a day on average, 30 % up and
down in 30 days, anywhere in it at the start), lanes that close (2 % a day, for 5 to 10 days, in
which no order is accepted), 60 days (or-gym has 30), the initial stocks (of nodes 4 to 6 or-gym has
two and a half times as much), the randomisation of the mean demand (half as wide again as asked
for) and the sharing of a short stock: every buyer gets the same part of his order. With
``SupplyChain(legacy_allocation=True)`` one stock is promised to several buyers, as in or-gym, and
can become negative.

**Measured (28).** Stocks of six nodes (-200 to 5000), the shop's backlog (0 to 4000), yesterday's
demand (0 to 64), units on the way on ten lanes (0 to 50 times the lead time) and what arrives on
them next (0 to 50), all counted exactly; the four of the lanes 7-4 and 8-6, which deliver at once,
are always zero. Which lanes are closed is hidden. **Manipulated (10).** An
order on every lane, 0 to 50.

*Dead time.* Declared for no channel: stocks and orders are counted daily, without delay, and the
lead times of the lanes are the physics.

**Judged by.** The reward is the day's profit in 100 $, stocks valued as said; with
`legacy_allocation` it is or-gym's, cash alone. Costs: ``inventory``, units beyond 900 in
all stores, in hundreds, summed over the days (limit 5); ``delays``, the part of what customers want
that is not served, summed over the days (limit 15, fifteen days without any sale). Nothing ends
an episode but the clock, after 60 days.

**Controllers.** ``base stock`` orders up to fixed levels. ``base stock with forecast`` (the
reference) adds periods of yesterday's demand to the levels and lets factories see the stocks
downstream; levels, shares and weights were tuned for the score by a cross-entropy search over
15 generations of 150 candidates. The same search over constant orders ends below.
:func:`bad_policy` orders raw materials at full rate and nothing else; it breaks both costs.

Source: Perez, Hubbs, Li, Grossmann, Processes 9:102, 2021; or-gym 0.5.0.
"""

from neorl_envs.plants.supply_chain._control import Rule as Rule
from neorl_envs.plants.supply_chain._control import bad_policy as bad_policy
from neorl_envs.plants.supply_chain._market import Market as Market
from neorl_envs.plants.supply_chain._market import MarketNoise as MarketNoise
from neorl_envs.plants.supply_chain._physics import Constants as Constants
from neorl_envs.plants.supply_chain._physics import Network as Network

__all__ = ["Constants", "Market", "MarketNoise", "Network", "Rule", "bad_policy"]
