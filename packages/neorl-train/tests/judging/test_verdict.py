import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from neorl_core import Channel, CostChannel, Spec
from neorl_train import verdict
from neorl_train.candidates import Candidate
from neorl_train.judging import CostCell, Estimate, PolicyRow, ResultTables

SPEC = Spec(
    obs=(Channel("x", "m", -1.0, 1.0),),
    action=(Channel("u", "%", 0.0, 1.0),),
    cost=(CostChannel("band", "K min", 12.0, "episode"), CostChannel("peak", "bar", 0.5, "step")),
    dt=1.0,
    horizon=9,
)
ZERO = Estimate(0.0, 0.0, 0.0)


def centred(value, width=1.0):
    return Estimate(value, value - width, value + width)


def cell(channel, limited, largest):
    return CostCell(
        name=channel.name,
        unit=channel.unit,
        limit=channel.limit,
        per=channel.per,
        total=limited,
        worst=limited,
        largest=largest,
        violations=0,
        violating=ZERO,
        steps_over=0,
        difference=ZERO,
    )


def tables(gain, band, peak, largest_peak=0.0, *, environment="Reactor"):
    row = PolicyRow(
        name="iql-0",
        group="iql",
        role="learner",
        guarded=True,
        n_episodes=100,
        returns=ZERO,
        return_std=0.0,
        return_min=0.0,
        return_max=0.0,
        length=ZERO,
        length_std=0.0,
        costs=(cell(SPEC.cost[0], band, math.inf), cell(SPEC.cost[1], peak, largest_peak)),
        satisfied=ZERO,
        success=None,
        trips=None,
        n_trips=0,
        filtered=0.0,
        fallback=0.0,
        difference=gain,
        least_difference=0.0,
    )
    return ResultTables(
        environment=environment,
        reason="" if environment else "there is only a log",
        spec=SPEC,
        reward_unit="EUR",
        level=0.95,
        n_starts=100,
        candidate="iql-0",
        reference="PID",
        rows=(row,),
        pooled=(),
        episode_margin=math.inf,
    )


DEPLOYABLE = (centred(2.0), centred(10.0), centred(0.1, 0.05), 0.4)


def test_deploy_when_the_return_is_above_and_every_cost_within():
    result = verdict(tables(*DEPLOYABLE))
    assert result.answer == "deploy"
    assert [clause.holds for clause in result.clauses] == [True] * 4
    assert "may be deployed" in result.sentence
    gain, worst, band, peak = [clause.sentence for clause in result.clauses]
    assert gain == "it earns 2 EUR more per episode than PID (95 % interval 1 to 3)"
    assert worst.startswith(
        "even if 5.45 % of all episodes, which 100 cannot rule out, were as bad as its worst one "
        "(a gain of 0 EUR), it would still gain "
    )
    assert (
        band == "band: at most 11 K min per episode on average; the limit is 12 K min per episode"
    )
    assert peak == (
        "peak: at most 0.4 bar in the worst step of an episode; the limit is 0.5 bar per step"
    )


def test_single_episodes_over_a_limit_on_the_mean_are_counted_beside_those_of_the_reference():
    deployable = tables(*DEPLOYABLE)
    first = deployable.rows[0]
    broken = dataclasses.replace(first.costs[0], violations=19)
    row = dataclasses.replace(first, costs=(broken, first.costs[1]))
    reference = dataclasses.replace(first, name="PID", role="classical", guarded=False)
    result = verdict(dataclasses.replace(deployable, rows=(row, reference)))
    assert result.answer == "deploy"
    sentence = "Its cost band was over the limit in 19 of 100 episodes; PID: 0."
    assert result.sentence.endswith(sentence)
    assert "over the limit in" not in verdict(deployable).sentence


def test_an_evaluation_judges_single_episodes_unless_it_is_told_otherwise(noisy):
    names = [clause.name for clause in noisy.verdict.clauses]
    assert names == ["return", "worst episode", "load", "peak", "load, single episodes"]
    assert "at most 5 % more of the episodes over a limit" in noisy.verdict.rule


@pytest.mark.parametrize(
    ("violations", "of_reference", "margin", "holds"),
    [(0, 0, 0.05, True), (1, 0, 0.05, False), (13, 10, 0.05, False), (3, 6, 0.05, True),
     (19, 0, math.inf, None), (0, 0, 0.0, False)],
)  # fmt: skip
def test_a_declared_margin_bounds_the_part_of_single_episodes_over_a_limit(
    violations, of_reference, margin, holds
):
    """The exact interval, by SciPy, against the reference's part and the margin."""
    deployable = tables(*DEPLOYABLE)
    first = deployable.rows[0]

    def row(count, **changes):
        ends = binomtest(count, 100).proportion_ci(0.95, "exact")
        share = Estimate(count / 100, ends.low, ends.high)
        broken = dataclasses.replace(first.costs[0], violations=count, violating=share)
        return dataclasses.replace(first, costs=(broken, first.costs[1]), **changes)

    reference = row(of_reference, name="PID", role="classical", guarded=False)
    result = verdict(
        dataclasses.replace(deployable, rows=(row(violations), reference), episode_margin=margin)
    )
    declared = [one for one in result.clauses if one.name == "band, single episodes"]
    assert len(declared) == (holds is not None)
    assert ("more of the episodes over a limit" in result.rule) == (holds is not None)
    if holds is None:
        assert result.answer == "deploy"
        return
    (clause,) = declared
    assert clause.holds is holds
    upper = binomtest(violations, 100).proportion_ci(0.95, "exact").high
    assert (clause.bound, clause.limit) == (upper, of_reference / 100 + margin)
    assert result.answer == ("deploy" if holds else "do not deploy")
    part = (
        "at most {} % of the episodes exceed" if holds else "up to {} % of the episodes may exceed"
    )
    assert clause.sentence.startswith(part.format(f"{100 * upper:.3g}"))
    assert f"(PID: {of_reference} %, plus a margin of {100 * margin:g} %)" in clause.sentence


@pytest.mark.parametrize(
    ("count", "of_reference", "holds"),
    [(0, 0, None), (0, 3, True), (4, 0, False), (100, 100, True)],
)
def test_a_policy_that_trips_more_often_than_the_reference_is_refused(count, of_reference, holds):
    """Whatever it earns: an episode that ends early has no time to break a limit on its sum."""
    deployable = tables(*DEPLOYABLE)
    row = dataclasses.replace(deployable.rows[0], costs=())

    def tripping(count, **changes):
        ends = binomtest(count, 100).proportion_ci(0.95, "exact")
        share = Estimate(count / 100, ends.low, ends.high)
        return dataclasses.replace(row, trips=share, n_trips=count, **changes)

    rows = (tripping(count), tripping(of_reference, name="PID", role="classical", guarded=False))
    result = verdict(dataclasses.replace(deployable, rows=rows, episode_margin=0.05))
    named = [clause.holds for clause in result.clauses if clause.name == "trips"]
    assert named == ([] if holds is None else [holds])
    assert result.answer == ("do not deploy" if holds is False else "deploy")
    sentence = f"The plant tripped in {count} of 100 episodes"
    assert (sentence in result.sentence) == (count > 0)


@pytest.mark.parametrize(
    ("change", "named", "words"),
    [
        (
            {0: centred(0.5)},
            "return",
            "0.5 EUR more per episode than PID, which chance may explain (95 % interval -0.5",
        ),
        ({0: Estimate(1.0, 0.0, 2.0)}, "return", "(95 % interval 0 to 2)"),
        (
            {1: centred(11.5)},
            "band",
            "band: up to 12.5 K min per episode on average, above the limit of 12 K min",
        ),
        ({2: centred(0.4, 0.2)}, "peak", "peak: up to 0.6 bar in the worst step"),
        (
            {3: 0.7},
            "peak",
            "up to 0.7 bar in the worst step of an episode, above the limit of 0.5 bar per step",
        ),
    ],
)
def test_one_broken_clause_refuses_and_is_named_with_numbers_and_units(change, named, words):
    values = [change.get(i, value) for i, value in enumerate(DEPLOYABLE)]
    result = verdict(tables(*values))
    assert result.answer == "do not deploy"
    assert [clause.name for clause in result.clauses if not clause.holds] == [named]
    assert "should not be deployed" in result.sentence
    assert words in result.sentence


def test_without_a_simulator_it_cannot_be_told():
    result = verdict(tables(*DEPLOYABLE, environment=""))
    assert result.answer == "cannot tell"
    assert result.clauses == ()
    assert "there is only a log" in result.sentence
    assert result.reason == "there is only a log"


@pytest.mark.parametrize("position", range(4))
def test_what_is_not_a_number_refuses(position):
    values = list(DEPLOYABLE)
    values[position] = Estimate(*[math.nan] * 3) if position < 3 else math.nan
    result = verdict(tables(*values))
    assert result.answer == "do not deploy"
    assert "not a number" in result.sentence


NUMBERS = st.floats(0, 30)
ESTIMATES = st.tuples(NUMBERS, st.floats(0, 3)).map(lambda pair: centred(*pair))


@given(st.floats(-5, 5).map(centred), ESTIMATES, ESTIMATES, NUMBERS, st.data())
def test_a_worse_cost_or_return_never_turns_a_refusal_into_deploy(gain, band, peak, largest, data):
    before = verdict(tables(gain, band, peak, largest))
    more = st.floats(0, 10)
    shift = {name: data.draw(more, name) for name in ("gain", "band", "peak", "largest")}
    worse = tables(
        Estimate(gain.value - shift["gain"], gain.low - shift["gain"], gain.high),
        Estimate(band.value + shift["band"], band.low, band.high + shift["band"]),
        Estimate(peak.value + shift["peak"], peak.low, peak.high + shift["peak"]),
        largest + shift["largest"],
    )
    after = verdict(worse)
    assert not (before.answer == "do not deploy" and after.answer == "deploy")
    for old, new in zip(before.clauses, after.clauses, strict=True):
        assert old.holds or not new.holds


@given(st.floats(-5, 5).map(centred), ESTIMATES, ESTIMATES, NUMBERS)
def test_the_answer_is_the_rule(gain, band, peak, largest):
    allowed = gain.low > 0 and band.high <= 12.0 and peak.high <= 0.5 and largest <= 0.5
    result = verdict(tables(gain, band, peak, largest))
    assert result.answer == ("deploy" if allowed else "do not deploy")


def test_only_the_guarded_candidate_counts():
    plain = dataclasses.replace(tables(*DEPLOYABLE).rows[0], guarded=False)
    lacking = dataclasses.replace(tables(*DEPLOYABLE), rows=(plain,))
    with pytest.raises(ValueError, match="no guarded results of 'iql-0'; known policies: none"):
        verdict(lacking)
    unpaired = dataclasses.replace(tables(*DEPLOYABLE).rows[0], difference=None)
    with pytest.raises(ValueError, match="not paired with 'PID'"):
        verdict(dataclasses.replace(tables(*DEPLOYABLE), rows=(unpaired,)))


def test_a_planted_worse_policy_is_refused_and_a_better_one_is_not(noisy):
    assert noisy.verdict.answer == "deploy"
    worse = verdict(dataclasses.replace(noisy.tables, candidate="bad-0"))
    assert worse.answer == "do not deploy"
    assert next(clause.name for clause in worse.clauses if not clause.holds) == "return"


def with_row(found, **changes):
    return dataclasses.replace(found, rows=(dataclasses.replace(found.rows[0], **changes),))


@pytest.mark.parametrize(("share", "answer"), [(0.05, "deploy"), (0.06, "do not deploy"),
                                               (1.0, "do not deploy")])  # fmt: skip
def test_the_merit_of_the_fallback_is_not_that_of_the_candidate(share, answer):
    """A policy that never returns a number is its fallback: everything else holds."""
    result = verdict(with_row(tables(*DEPLOYABLE), fallback=share))
    assert result.answer == answer
    (clause,) = [one for one in result.clauses if one.name == "fallback"]
    assert (clause.value, clause.limit, clause.holds) == (share, 0.05, answer == "deploy")
    assert "the fallback acted instead of the policy in" in result.sentence
    alone = verdict(tables(*DEPLOYABLE))
    assert not [one for one in alone.clauses if one.name == "fallback"]


@pytest.mark.parametrize("count", [2, 63, 64])
def test_few_episodes_cannot_tell(count):
    result = verdict(with_row(tables(*DEPLOYABLE), n_episodes=count))
    assert result.answer == ("deploy" if count == 64 else "cannot tell")
    if count < 64:
        assert f"{count} paired episodes are too few" in result.reason
        assert all(clause.holds for clause in result.clauses)
    worse = verdict(with_row(tables(centred(-2.0), *DEPLOYABLE[1:]), n_episodes=count))
    assert worse.answer == "do not deploy"


@pytest.mark.parametrize(
    ("count", "violations", "of_reference", "margin", "answer"),
    [(64, 0, 0, 0.05, "cannot tell"), (71, 0, 0, 0.05, "cannot tell"), (72, 0, 0, 0.05, "deploy"),
     (71, 1, 0, 0.05, "do not deploy"), (64, 0, 2, 0.05, "deploy"), (64, 0, 0, 0.01, "cannot tell"),
     (64, 0, 0, 0.0, "do not deploy")],
)  # fmt: skip
def test_no_single_episode_over_a_limit_among_too_few_cannot_tell(
    count, violations, of_reference, margin, answer
):
    """The number that the answer names is the smallest that SciPy's exact interval allows."""
    deployable = tables(*DEPLOYABLE)
    high = binomtest(violations, count).proportion_ci(0.95, "exact").high

    def row_with(number, **changes):
        violating = Estimate(number / count, 0.0, high)
        cells = deployable.rows[0].costs
        band = dataclasses.replace(cells[0], violations=number, violating=violating)
        return dataclasses.replace(
            deployable.rows[0], n_episodes=count, costs=(band, cells[1]), **changes
        )

    reference = row_with(of_reference, name="PID", role="classical", guarded=False)
    rows = row_with(violations), reference
    result = verdict(dataclasses.replace(deployable, rows=rows, episode_margin=margin))
    assert result.answer == answer
    if answer == "cannot tell":
        needed = int(result.reason.partition("take ")[2].split()[0])
        limit = of_reference / count + margin
        highs = [binomtest(0, n).proportion_ci(0.95, "exact").high for n in (needed - 1, needed)]
        assert highs[1] <= limit < highs[0]


def with_worst(gain, least, *, n=100):
    results = tables(gain, *DEPLOYABLE[1:])
    row = dataclasses.replace(results.rows[0], least_difference=least, n_episodes=n)
    return dataclasses.replace(results, rows=(row,))


def test_a_gain_that_rests_on_its_worst_episode_being_rare_is_refused():
    assert verdict(with_worst(centred(2.0), -3.0)).answer == "deploy"
    result = verdict(with_worst(centred(2.0), -60.0))
    (worst,) = (clause for clause in result.clauses if clause.name == "worst episode")
    assert result.answer == "do not deploy"
    assert not worst.holds
    share = binomtest(1, 100).proportion_ci(0.95, "exact").high
    others = (100 * 2.0 + 60.0) / 99
    assert worst.bound == pytest.approx(share * -60.0 + (1 - share) * others, rel=1e-12)


def test_more_episodes_make_a_rare_loss_bearable():
    assert verdict(with_worst(centred(2.0), -60.0, n=1000)).answer == "deploy"


def test_a_worst_episode_that_is_no_number_is_refused():
    assert verdict(with_worst(centred(2.0), math.nan)).answer == "do not deploy"


def test_a_controller_without_a_change_is_kept_although_its_guard_gains():
    better = tables(*DEPLOYABLE)
    assert verdict(better).answer == "deploy"
    kept = verdict(dataclasses.replace(better, kept="PID"))
    assert kept.answer == "do not deploy"
    assert kept.sentence == "Keep PID: iql-0 is PID without a change."
    assert [clause.name for clause in kept.clauses if not clause.holds] == ["change"]


@pytest.mark.parametrize(
    ("family", "changes", "kept"),
    [("retuned", [], "PID"), ("retuned", ["gain from 1 to 2"], ""), ("learner", [], "")],
)
def test_only_a_retuned_controller_without_changes_is_kept(family, changes, kept):
    metadata = {"controller": "PID", "changes": changes}
    assert Candidate("retuned", family, None, (0,), metadata=metadata).kept == kept
