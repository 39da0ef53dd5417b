"""Retuning against the best gain of a linear plant, and a choice that can be made by hand."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, stats

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    TODAY,
    ChoiceRule,
    IncumbentEpisodes,
    OtherController,
    PlantFacts,
    Prediction,
    Refusal,
    RetuneSettings,
    SearchSettings,
    choose,
    half_width,
    learned_plants,
    model_error,
    predictions,
    replayed,
    retune,
    searched_changes,
    select,
)
from neorl_agents.retuning._choice import _refusals
from neorl_agents.retuning._search import excess, limits_of, predicted_of_changes
from neorl_core import Channel, CostChannel, InputError, Spec, Transition
from neorl_core.control import ConstantPolicy, StateFeedback, tunables

SPEC = Spec(
    (Channel("level", "m", -30.0, 30.0),),
    (Channel("valve", "%", -50.0, 50.0),),
    (CostChannel("moved", "%", 200.0, "episode"),),
    dt=1.0,
    horizon=40,
)
GROWTH, EFFECT, PRICE = 0.98, 0.5, 0.1
BEST = float(
    linalg.solve_discrete_are(
        np.array([[GROWTH]]), np.array([[EFFECT]]), np.eye(1), PRICE * np.eye(1)
    )[0, 0]
)
BEST = BEST * GROWTH * EFFECT / (PRICE + EFFECT**2 * BEST)  # the regulator's gain
QUICK = RetuneSettings(
    model=HistoryModelSettings(history=(1,), members=2, updates=300, width=16),
    search=SearchSettings(population=10, generations=8, episodes=8),
    evaluation_episodes=16,
)


def law(gain):
    low, high = (jnp.full(1, x) for x in (-50.0, 50.0))
    return StateFeedback(jnp.full((1, 1), gain), jnp.zeros(1), jnp.zeros(1), low, high)


def episodes(gain, count, rng, test_signal=0.0):
    """Columns of episodes of ``x' = 0.98 x + 0.5 u + w`` under ``u = -gain x`` and a signal."""
    x = 3 * rng.normal(size=count)
    rows = []
    for _ in range(SPEC.horizon):
        u = np.clip(-gain * x + test_signal * rng.normal(size=count), -50, 50)
        after = GROWTH * x + EFFECT * u + 0.3 * rng.normal(size=count)
        rows.append((x, u, -(x**2) - PRICE * u**2, np.abs(u), after))
        x = after
    return [np.stack(column, axis=1) for column in zip(*rows, strict=True)]


def true_return(gain, seed=5, count=4000):
    return float(episodes(gain, count, np.random.default_rng(seed))[2].sum(axis=1).mean())


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    obs, action, reward, cost, after = (x.ravel() for x in episodes(0.3, 60, rng, 0.7))
    n = len(obs)
    return Transition(
        obs=obs[:, None], action=action[:, None], reward=reward, cost=cost[:, None],
        next_obs=after[:, None], terminated=np.zeros(n, bool),
        truncated=np.arange(n) % SPEC.horizon == SPEC.horizon - 1, mask=np.ones(n, bool),
    )  # fmt: skip


@pytest.fixture(scope="module")
def plants(log):
    return learned_plants(log, SPEC, 0, settings=QUICK)


def test_a_timid_controller_is_retuned_towards_the_regulator(plants):
    """The true return, which nothing here has seen, rises by a good part of the best gain."""
    done = retune(plants, law(0.3), 0, QUICK)
    assert done.chosen != TODAY
    gain = float(done.policy.gain[0, 0])
    gained, possible = true_return(gain) - true_return(0.3), true_return(BEST) - true_return(0.3)
    assert gained > 0.4 * possible, (gain, BEST)
    (change,) = [c for c in done.changes if c.name.startswith("gain")]
    np.testing.assert_allclose([change.before, change.after], [0.3, gain], rtol=1e-6)
    taken = {one.name: one for one in done.table}[done.chosen]
    assert 0 < taken.low < taken.gain
    np.testing.assert_allclose(taken.gain, gained, rtol=0.5)


def test_the_best_gain_is_kept(plants):
    done = retune(plants, law(BEST), 0, QUICK)
    assert done.chosen == TODAY
    assert float(done.policy.gain[0, 0]) == pytest.approx(BEST, rel=1e-6)
    assert all(one.refusals for one in done.table[1:])


def change_to(gain):
    """The changes that make ``gain`` of a gain of 0.3."""
    declared = tunables(law(0.3), SPEC)
    (place,) = [i for i, one in enumerate(declared) if one.name.startswith("gain")]
    changes = np.zeros(len(declared))
    changes[place] = math.log(gain / 0.3) / declared[place].step
    return changes


def test_proposals_are_judged_in_place_of_a_search(plants):
    proposed = {"worst": change_to(0.02), "north": change_to(BEST), "worse": change_to(0.1)}
    helped = retune(plants, law(0.3), 0, QUICK, proposed=proposed)
    names = {f"{name} {part:g}" for name in proposed for part in QUICK.fractions}
    assert {one.name for one in helped.table} == {TODAY, *names}
    gain = float(helped.policy.gain[0, 0])
    assert helped.chosen.startswith("north")
    assert true_return(gain) - true_return(0.3) > 0.4 * (true_return(BEST) - true_return(0.3))
    false = retune(
        plants, law(0.3), 0, QUICK, proposed={k: v for k, v in proposed.items() if k != "north"}
    )
    assert false.chosen == TODAY
    assert retune(plants, law(0.3), 0, QUICK, proposed={}).chosen == TODAY


def test_what_a_search_finds_is_its_first_candidate(plants):
    changes = searched_changes(plants, law(0.3), 0, QUICK)
    told = retune(plants, law(0.3), 0, QUICK, proposed={"a": changes})
    alone = retune(plants, law(0.3), 0, QUICK)
    ends = [next(one for one in done.table if one.name == "a 1") for done in (told, alone)]
    assert ends[0].gain == pytest.approx(ends[1].gain, rel=1e-6)


def test_a_proposal_for_another_controller_is_refused(plants):
    with pytest.raises(InputError, match=r"proposal north has the shape \(7,\), .* one change for"):
        retune(plants, law(0.3), 0, QUICK, proposed={"north": np.zeros(7)})


def test_a_second_search_compiles_nothing(plants):
    retune(plants, law(0.3), 0, QUICK)
    size = predicted_of_changes._cache_size()
    retune(plants, law(0.5), 3, QUICK)
    assert predicted_of_changes._cache_size() == size


def test_a_pool_is_ranked_as_on_the_plant(plants):
    gains = {"off": 0.0, "timid": 0.3, "good": BEST, "wild": 4.2, "wrong": -0.5}
    pool = {name: law(gain) for name, gain in gains.items()}
    chosen, table = select(plants, pool, "timid")
    assert chosen == "good"
    by_name = {one.name: one for one in table}
    assert by_name["timid"].gain == 0
    assert by_name["timid"].refusals == ()
    order = sorted(("off", "timid", "good"), key=lambda name: by_name[name].gain)
    assert order == sorted(order, key=lambda name: true_return(gains[name]))
    for name in ("off", "wild", "wrong"):
        assert by_name[name].refusals, name


def test_what_was_searched_is_not_what_judges(log):
    plants = learned_plants(log, SPEC, 1, settings=QUICK)
    firsts = [np.asarray(p.episodes.obs) for p in (plants.search_plant, plants.evaluation_plant)]
    assert not set(map(float, firsts[0].ravel())) & set(map(float, firsts[1].ravel()))


def prediction(name, **changes):
    usual = {
        "returns": 0.0, "gain": 2.0, "low": 1.0, "by_member": (2.0, 2.0), "cost": (), "episodes": 9,
        "cost_high": (), "cost_incumbent": (), "over": (), "over_incumbent": (), "outside": 0.0,
        "outside_incumbent": 0.0,
    }  # fmt: skip
    return Prediction(name, **{**usual, **changes})


def test_the_largest_lower_bound_without_a_refusal_is_chosen():
    table = [
        prediction("today", gain=0.0, low=0.0),
        prediction("sure", low=1.0, gain=1.5),
        prediction("bold", low=0.5, gain=9.0),
        prediction("bad", low=3.0, refused_by=(Refusal("costs", "over its limit"),)),
    ]
    assert choose(table, "today") == "sure"
    assert choose([table[0], table[3]], "today") == "today"


def test_the_error_on_logged_episodes_widens_the_interval_of_the_true_gain(plants):
    """By hand: a half width of 3 and 1.96 errors of 4 / 1.96 are 5 together."""
    one = prediction("wide", gain=6.0, low=3.0, error=4 / 1.96)
    assert one.true_gain == pytest.approx((1.0, 11.0))
    assert prediction("known", gain=6.0, low=3.0).true_gain == (3.0, 9.0)
    pool = {"timid": law(0.3), "good": law(0.6)}
    sure, unsure = (
        predictions(plants.evaluation_plant, pool, "timid", plants.scale, error=error)[1]
        for error in (0.0, 0.1)
    )
    assert (unsure.error, unsure.low, unsure.gain) == (0.1, sure.low, sure.gain)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"least_gain": 1e6}, "the lower end of its predicted gain"),
        (
            {"outside": 0.0, "slack": -1.0, "extrapolation_penalty": math.inf},
            "away from the data of the log",
        ),
        ({"over": -1.1}, "of its episodes exceed 80% of the limit of moved"),
        ({"rise": -9.0}, "its mean moved rises from"),
        ({"contradiction": -1e6}, "the linear part of the model predicts a loss"),
    ],
)
def test_every_clause_of_the_rule_refuses(plants, rule, message):
    pool = {"timid": law(0.3), "good": law(0.6)}
    table = predictions(plants.evaluation_plant, pool, "timid", plants.scale, ChoiceRule(**rule))
    assert [message in " ".join(one.refusals) for one in table] == [False, True]


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (9.0, "predicts a loss of 5, but its networks predict a gain of 9"),
        (-9.0, "predicts a loss of 5, and its networks predict one of 9"),
    ],
)
def test_a_loss_is_never_called_a_gain(gain, words):
    one = prediction("bad", gain=gain, low=gain - 1, by_member=(gain, -5.0))
    spec = dataclasses.replace(SPEC, cost=())
    assert any(words in reason.sentence for reason in _refusals(one, spec, 1.0, ChoiceRule()))


def test_leaving_the_log_costs_a_part_of_the_predicted_gain(plants):
    """By hand: 0.03 outside beside 0.01 of the incumbent is 0.0174 too far, at 20 times 50."""
    rule = ChoiceRule(outside=1.25, slack=1e-4, extrapolation_penalty=20.0)
    assert rule.penalty(0.03, 0.01, 50.0) == pytest.approx(17.4)
    assert rule.penalty(0.0125, 0.01, 50.0) == 0.0
    assert rule.farthest(0.01) == pytest.approx(0.0626)
    strict = dataclasses.replace(rule, extrapolation_penalty=math.inf)
    assert strict.penalty(0.03, 0.01, 50.0) == 0.0, "it is refused, and its bound stays a number"
    assert strict.farthest(0.01) == pytest.approx(0.0126)

    pool = {"timid": law(0.3), "good": law(0.6)}
    dear = ChoiceRule(outside=0.0, slack=-0.01, extrapolation_penalty=30.0)
    lows = [
        predictions(plants.evaluation_plant, pool, "timid", plants.scale, rule, logged=logged)[
            1
        ].low
        for rule, logged in ((dear, ()), (dear, ("good",)), (ChoiceRule(outside=1e9), ()))
    ]
    outside = predictions(plants.evaluation_plant, pool, "timid", plants.scale, dear)[1].outside
    assert lows[1] == lows[2], "where a logged controller goes, the log has been"
    assert lows[1] - lows[0] == pytest.approx(30 * plants.scale * (outside + 0.01), rel=1e-4)
    (searched,) = predictions(
        plants.evaluation_plant, pool, "timid", plants.scale, dear, searched=("good",)
    )[1:]
    assert searched.low == lows[1]
    assert any("away from the data of the log" in reason for reason in searched.refusals)


def test_a_policy_that_diverges_is_refused(plants):
    class Diverging(ConstantPolicy):
        def __call__(self, carry, obs, key=None):
            return carry, obs * jnp.inf

    pool = {"timid": law(0.3), "nan": law(float("nan"))}
    table = predictions(plants.evaluation_plant, pool, "timid", plants.scale)
    assert table[1].refusals


def test_costs_beyond_a_part_of_their_limits_count():
    """By hand: 150 of 200 with a budget of 0.4 is 0.35 of a limit; a limit of zero has none."""
    spec = dataclasses.replace(SPEC, cost=(*SPEC.cost, CostChannel("trip", "1", 0.0, "step")))
    cost = np.array([[0.0, 0.0], [3.0, 2.0], [5.0, 4.0]])
    limits = limits_of(spec, cost)
    np.testing.assert_allclose(limits.typical, [4.0, 3.0])
    nothing = jnp.zeros(1)
    from neorl_agents.models import PredictedEpisodes

    seen = PredictedEpisodes(
        nothing, jnp.asarray([[150.0, 9.0]]), jnp.asarray([[5.0, 6.0]]), nothing, nothing
    )
    np.testing.assert_allclose(excess(seen, limits, 0.4), [0.35 + 1.95], rtol=1e-6)


@pytest.mark.parametrize("episodes", [2, 3, 5, 40])
def test_an_interval_of_few_episodes_is_students(episodes):
    """SciPy's interval of the mean, which holds it in 95 % of draws; networks add to it."""
    rng, z = np.random.default_rng(0), stats.norm.ppf(0.975)
    of_episodes = rng.normal(size=episodes)
    low, high = stats.t.interval(0.95, episodes - 1, 0.0, stats.sem(of_episodes))
    np.testing.assert_allclose(half_width(of_episodes[None], z), (high - low) / 2)
    two = np.stack([of_episodes - 3.0, of_episodes + 3.0])
    np.testing.assert_allclose(half_width(two, z), (high - low) / 2 + 3.0)
    draws = rng.normal(size=(1, episodes, 20_000))
    held = np.abs(draws.mean(axis=(0, 1))) < half_width(draws, z)
    assert abs(held.mean() - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 20_000)


def test_one_episode_says_nothing_of_a_mean():
    assert half_width(np.zeros((3, 1, 2)), 1.96).tolist() == [math.inf, math.inf]


def test_logs_and_controllers_that_cannot_be_retuned_are_refused(log, plants):
    short = jax.tree.map(lambda x: x[: 5 * SPEC.horizon], log)
    with pytest.raises(InputError, match="the log has 5 episodes; a plant model needs at least 8"):
        learned_plants(short, SPEC, 0, settings=QUICK)
    with pytest.raises(InputError, match="ConstantPolicy declares no number that may be tuned"):
        retune(plants, ConstantPolicy(jnp.ones(1)), 0, QUICK)
    with pytest.raises(InputError, match="unknown observation channel"):
        learned_plants(log, SPEC, 0, PlantFacts(exogenous=("temperature",)), QUICK)
    assert tunables(law(1.0), SPEC)[0].name == "gain from level to valve"


def test_a_gain_that_is_small_beside_the_error_of_the_model_is_refused(plants):
    """The same pool, once with a log that the model repeats and once with one that it does not."""
    pool = {"timid": law(0.3), "good": law(BEST)}
    own = np.ones(len(plants.logged), bool)
    repeated = plants._replace(by_incumbent=own).with_model_error(law(0.3))
    assert select(repeated, pool, "timid")[0] == "good"
    elsewhere = repeated._replace(logged=plants.logged - 50 * plants.scale).with_model_error(
        law(0.3)
    )
    chosen, (_, good) = select(elsewhere, pool, "timid")
    assert chosen == "timid"
    assert any("of the model's error" in reason for reason in good.refusals)
    others = elsewhere._replace(by_incumbent=~own).with_model_error(law(0.3))
    assert select(others, pool, "timid")[0] == "good"


def test_who_filled_the_episodes_must_fit_the_log(log):
    with pytest.raises(InputError, match="by_incumbent has 3 entries, but the log has 60 episodes"):
        learned_plants(log, SPEC, 0, settings=QUICK, by_incumbent=np.ones(3, bool))


def test_the_error_of_a_model_is_that_between_the_episodes_of_two_controllers():
    """By hand: a gain of 4 where the incumbent acted and of 1 where the other did."""
    returns = np.zeros((3, 8))
    theirs = np.tile([4.0, 4.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0], (3, 1))
    theirs[-1] = 99  # the linear part is not asked
    own = np.arange(8) < 4
    nobody = OtherController(law(0.0), ~own)
    log = IncumbentEpisodes(np.where(own, 0.5, 7.0), own, (nobody,))
    assert model_error(returns, [theirs], log) == pytest.approx(3.0)
    assert model_error(returns, [], log._replace(others=())) == pytest.approx(0.5)
    assert model_error(returns, [theirs], log._replace(by_incumbent=own & False)) == 0.0
    # What chance alone explains is taken off: 1 +- 2 and 4 +- 2 over four episodes each.
    noisy = theirs + np.tile([2.0, -2.0], 4)
    chance = np.sqrt(2 * (16 / 3) / 4)
    assert model_error(returns, [noisy], log) == pytest.approx(3.0 - chance)


def test_the_error_across_controllers_of_a_model_of_the_right_class_is_small(plants):
    halves = np.arange(len(plants.logged)) % 2 == 0
    mean = float(replayed(plants.evaluation_plant, law(0.3)).returns[:-1, halves].mean())
    known = plants._replace(by_incumbent=halves, logged=np.full(len(halves), mean))
    sure = known.with_model_error(law(0.3), [OtherController(law(0.6), ~halves)])
    assert known.with_model_error(law(0.3)).error < 1e-3 <= sure.error + 1e-3 < 0.1 * plants.scale
