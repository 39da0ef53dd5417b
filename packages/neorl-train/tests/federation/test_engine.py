"""Rounds: rules, faults, resumption to the same bits, and what happens when sites are gone."""

import types

import numpy as np
import pytest

from neorl_core import InputError
from neorl_train.federation import (
    Fault,
    GossipConfig,
    MessagesConfig,
    PrivacyConfig,
    epsilon,
    federation_checkpoints,
)
from neorl_train.federation._rules import combine, limited_shares


@pytest.fixture(scope="module")
def clean(run):
    return run()


def distance(one, other):
    return float(np.linalg.norm(one.parameters["site0"] - other.parameters["site0"]))


def moved(result, clean):
    return distance(result, clean) / travelled(clean)


def travelled(result):
    return sum(record.change for record in result.records)


def test_one_round_is_the_weighted_mean_of_what_each_site_reaches_alone(run, sites):
    """The same numbers by NumPy in float64: w + sum_i n_i (w_i - w) / sum_i n_i."""
    together = run(rule={"rounds": 1}, chosen=["site0", "site1"])
    alone = [
        run(rule={"rounds": 1, "rule": "gossip", "least_sites": 1}, chosen=["site0", "site1"],
            gossip=GossipConfig(graph="complete", steps=1), faults=[Fault(gone, "late")])
        for gone in ("site1", "site0")
    ]  # fmt: skip
    own = [alone[0].parameters["site0"], alone[1].parameters["site1"]]
    mean = np.mean(np.asarray(own, np.float64), axis=0)
    np.testing.assert_allclose(together.parameters["site0"], mean, rtol=0, atol=1e-6)


def test_the_same_seed_gives_the_same_bits_and_a_resumed_run_too(run, clean, tmp_path):
    again = run()
    np.testing.assert_array_equal(again.parameters["site0"], clean.parameters["site0"])
    options = {"messages": MessagesConfig(bits=8, fraction=0.5), "rule": {"participation": 0.7}}
    whole = run(**options)
    for stop_after in (2,):
        keep = federation_checkpoints(tmp_path / str(stop_after), {"test": 1})
        calls = iter([False] * stop_after + [True] * 9)
        half = run(checkpoints=keep, stop=lambda calls=calls: next(calls), **options)
        assert not half.finished
        keep = federation_checkpoints(tmp_path / str(stop_after), {"test": 1})
        resumed = run(checkpoints=keep, **options)
        assert resumed.finished
        assert len(half.records) + len(resumed.records) == 3
        np.testing.assert_array_equal(resumed.parameters["site0"], whole.parameters["site0"])


NIGHTLY = ("trimmed-mean", "multi-krum", "geometric-median", "centred-clipping")
ROBUST = ("median", "krum", *(pytest.param(rule, marks=pytest.mark.nightly) for rule in NIGHTLY))
ATTACKS = (
    Fault("site4", "scaled", factor=1e3),
    Fault("site4", "flipped", factor=1e3),
    Fault("site4", "nan"),
)


@pytest.mark.parametrize("rule", ROBUST)
def test_robust_rules_keep_one_faulty_site_of_five_from_moving_the_result(rule, run, clean):
    """A result within twice the distance that the clean rounds travel; the mean leaves it far."""
    options = {"rule": {"rule": rule, "byzantine": 1, "radius": 0.02}}
    for fault in ATTACKS:
        attacked = run(faults=[fault], **options)
        assert moved(attacked, clean) < 2, (rule, fault.kind)
        assert all(record.counted for record in attacked.records)


def test_plain_averaging_is_moved_far_by_the_same_faults(run, clean):
    for fault in ATTACKS[:2]:
        assert moved(run(faults=[fault]), clean) > 20


def test_a_site_that_sends_nan_is_left_out_of_the_mean_and_named(run):
    attacked = run(faults=[Fault("site4", "nan", first=1, last=1)])
    assert [r.outcomes["site4"] for r in attacked.records] == ["answered", "not finite", "answered"]
    assert np.isfinite(attacked.parameters["site0"]).all()


def test_a_site_that_claims_other_rows_later_is_refused_and_the_rest_go_on(run):
    lied = run(faults=[Fault("site4", "miscounts", first=1, factor=1e6)])
    assert lied.records[1].outcomes["site4"] == (
        "refused: it reports 120000000 rows, and reported 120 before"
    )
    assert lied.records[1].counted
    assert sorted(lied.records[1].shares) == ["site0", "site1", "site2", "site3"]


def test_no_claim_of_rows_gives_a_site_more_than_its_limit():
    shares, cut = limited_shares(np.asarray([100, 100, 1e12]), 0.5)
    np.testing.assert_allclose(shares, [0.25, 0.25, 0.5])
    assert cut.tolist() == [False, False, True]
    shares, _ = limited_shares(np.asarray([1.0, 3.0]), 1.0)
    np.testing.assert_allclose(shares, [0.25, 0.75])


def test_dead_late_and_returning_sites_have_a_stated_outcome(run, clean):
    faults = [Fault("site1", "dead", 1, 1), Fault("site2", "late", 0, 1)]
    result = run(faults=faults)
    assert [r.outcomes["site1"] for r in result.records] == ["answered", "dead", "answered"]
    assert [r.outcomes["site2"] for r in result.records] == ["late", "late", "answered"]
    assert moved(result, clean) < 1


def test_when_all_sites_are_gone_one_line_says_so_and_the_rounds_before_are_kept(run, tmp_path):
    gone = [Fault(f"site{i}", "dead", 1) for i in range(5)]
    keep = federation_checkpoints(tmp_path / "c", {"test": 2})
    collected = []
    with pytest.raises(
        InputError, match="no round has been completed since round 1: site0: dead"
    ) as error:
        run(rule={"patience": 2}, faults=gone, checkpoints=keep, print_line=collected.append)
    assert "\n" not in str(error.value)
    assert collected == [
        f"round {i}: too few sites answered (site0: dead; site1: dead; site2: dead; site3: dead; "
        "site4: dead)"
        for i in (1, 2)
    ]
    back = run(checkpoints=federation_checkpoints(tmp_path / "c", {"test": 2}))
    assert back.finished
    assert [(record.round, record.counted) for record in back.records] == [(2, True)]


def test_rounds_of_which_none_counted_are_an_error_and_no_result(run):
    """Three rounds are fewer than the patience of five."""
    gone = [Fault(f"site{i}", "dead") for i in range(5)]
    with pytest.raises(InputError, match="no round has been completed since round 0: site0: dead"):
        run(rule={"patience": 5}, faults=gone)


def test_a_round_with_fewer_answers_than_the_rule_needs_changes_nothing(run):
    absent = [Fault(f"site{i}", "late", 0, 0) for i in range(3)]
    result = run(rule={"rule": "median", "byzantine": 1}, faults=absent)
    assert [record.counted for record in result.records] == [False, True, True]


@pytest.mark.nightly
def test_fed_prox_pulls_towards_the_common_parameters(run, clean):
    pulled = run(rule={"proximal": 3e3, "rounds": 1})
    assert pulled.records[0].change < 0.7 * clean.records[0].change
    assert pulled.records[0].change > 0


def test_gossip_keeps_the_mean_and_shrinks_the_disagreement(run, clean):
    ring = run(rule={"rule": "gossip"})
    assert ring.records[-1].disagreement > 0
    exact = run(rule={"rule": "gossip"}, gossip=GossipConfig(graph="ring", exact=True))
    assert exact.records[-1].disagreement < 1e-5
    assert distance(exact, clean) < 1e-4
    mean = np.mean([ring.parameters[f"site{i}"] for i in range(5)], axis=0)
    assert np.linalg.norm(mean - clean.parameters["site0"]) < 0.5 * travelled(clean)
    # Ten directed links, each with all parameters.
    assert ring.records[0].bytes_up == 10 * 4 * len(mean)


def test_two_levels_of_groups_agree_on_the_mean_of_all_sites(run):
    """Two matrices a round: within pairs, then between them; each site sends twice."""
    names = [f"site{i}" for i in range(4)]
    levels = GossipConfig(graph="hierarchical", groups=(2, 2))
    result = run(rule={"rule": "gossip", "rounds": 1}, chosen=names, gossip=levels)
    one = run(rule={"rule": "gossip", "rounds": 1}, chosen=names,
              gossip=GossipConfig(graph="complete"))  # fmt: skip
    for name in names:
        np.testing.assert_allclose(result.parameters[name], one.parameters[name], rtol=0, atol=1e-6)
    assert result.records[0].disagreement < 1e-5
    assert result.records[0].bytes_up == 4 * 2 * 4 * len(result.parameters["site0"])


@pytest.mark.nightly
def test_gossip_survives_absent_and_nan_sites(run):
    faults = [Fault("site1", "dead", 1, 1), Fault("site2", "nan", 1, 1)]
    result = run(rule={"rule": "gossip"}, faults=faults)
    assert result.records[1].outcomes["site2"] == "not finite"
    for vector in result.parameters.values():
        assert np.isfinite(vector).all()


def test_masked_sums_equal_plain_sums_of_the_same_integers(run, clean, monkeypatch):
    masked = run(messages=MessagesConfig(secure_sum=True))
    monkeypatch.setattr(
        "neorl_train.federation._privacy.Pairings.mask",
        lambda self, present, round_, attempt, size: np.zeros(size, np.uint32),
    )
    plain = run(messages=MessagesConfig(secure_sum=True))
    np.testing.assert_array_equal(masked.parameters["site0"], plain.parameters["site0"])
    np.testing.assert_allclose(
        masked.parameters["site0"], clean.parameters["site0"], rtol=0, atol=1e-5
    )


def test_groups_of_masked_sums_train_and_name_a_late_site(run):
    masked = MessagesConfig(secure_sum=True, groups=2)
    rule = {"rule": "median", "byzantine": 0, "rounds": 2}
    late = [Fault("site3", "late", 1, 1)]
    result = run(rule=rule, messages=masked, faults=late)
    assert [record.counted for record in result.records] == [True, True]
    assert result.records[0].answered == [f"site{i}" for i in range(5)]
    assert result.records[1].outcomes["site3"] == "late"


@pytest.mark.nightly
def test_a_masked_sum_goes_on_without_a_site_that_falls_silent(run):
    result = run(messages=MessagesConfig(secure_sum=True), faults=[Fault("site3", "late", 1, 1)])
    record = result.records[1]
    assert record.counted
    assert record.outcomes["site3"] == "late"
    assert sorted(record.shares) == ["site0", "site1", "site2", "site4"]
    absent = run(faults=[Fault("site3", "late", 1, 1)])
    np.testing.assert_allclose(
        result.parameters["site0"], absent.parameters["site0"], rtol=0, atol=1e-5
    )


def test_noise_follows_the_secret_and_a_clipped_site_moves_the_sum_by_its_length(run):
    secret = np.arange(4, dtype=np.uint32)
    options = {"privacy": PrivacyConfig(1.0, 0.01), "secret": secret}
    one, two = run(**options), run(**options)
    np.testing.assert_array_equal(one.parameters["site0"], two.parameters["site0"])
    attacked = run(faults=[Fault("site4", "scaled", factor=1e6)], **options)
    # Each round the attacker and the honest update in its place move the sum by 0.01 each.
    first = attacked.records[0].change
    assert abs(first - one.records[0].change) <= 2 * 0.01 / 5 + 1e-6
    assert one.epsilon == pytest.approx(8.3854, abs=1e-3)
    other = run(privacy=PrivacyConfig(1.0, 0.01), secret=secret + 1)
    assert distance(one, other) > 1e-3
    both = run(messages=MessagesConfig(secure_sum=True), **options)
    assert distance(both, one) < 1e-3


def test_noise_of_the_sites_survives_the_masks(run):
    """Row P09: no part of it is drawn by the server, which adds nothing to the sum."""
    masked, once = MessagesConfig(secure_sum=True), {"rounds": 1}
    quiet = run(rule=once, messages=masked, privacy=PrivacyConfig(1e-6, 1.0))
    by_sites = PrivacyConfig(0.05, 1.0, added_by="sites", dishonest=1)
    noisy = run(rule=once, messages=masked, privacy=by_sites)
    change = noisy.parameters["site0"] - quiet.parameters["site0"]
    # Five shares with 0.05 / sqrt(4) each, divided by the five sites.
    expected = 0.05 * np.sqrt(5 / 4) / 5
    np.testing.assert_allclose(np.std(change), expected, rtol=4 / np.sqrt(2 * change.size))
    assert noisy.epsilon == epsilon(rounds=1, noise_multiplier=0.05, participation=1, delta=1e-5)
    lost = run(
        messages=masked, privacy=PrivacyConfig(0.05, 1.0, added_by="sites"),
        faults=[Fault("site3", "late", 1, 1)],
    )  # fmt: skip
    assert [record.counted for record in lost.records] == [True, False, True]


BAD = {
    "too many faulty": (
        {"rule": "krum", "byzantine": 2},
        "krum needs 7 sites or more to tolerate 2 faulty sites, and there are 5; at most 1 of 5",
    ),
    "faulty under a mean": (
        {"byzantine": 1},
        "mean tolerates no faulty site; choose one of median",
    ),
    "bulyan with five": ({"rule": "bulyan", "byzantine": 1}, "needs 7 sites or more"),
    "half an update": ({"local_updates": 7}, "must be a multiple of"),
    "share": ({"largest_share": 0.1}, "cannot all be below 0.2"),
    "chance": ({"participation": 0.0}, r"federation.participation must be a number in \(0, 1\]"),
    "least": ({"least_sites": 6}, "least_sites is 6, but there are only 5 sites"),
}


@pytest.mark.parametrize("case", BAD)
def test_settings_that_do_not_fit_are_refused_in_one_line(case, run):
    rule, words = BAD[case]
    with pytest.raises(InputError, match=words) as error:
        run(rule=rule)
    assert "\n" not in str(error.value)


TOGETHER = {
    "noise under a median": (
        {"rule": {"rule": "median"}, "privacy": PrivacyConfig(1.0)},
        'privacy.noise_multiplier needs federation.rule = "mean"',
    ),
    "masked sums under krum": (
        {"rule": {"rule": "krum"}, "messages": MessagesConfig(secure_sum=True)},
        "a masked sum hides the single updates",
    ),
    "noise and compression": (
        {"privacy": PrivacyConfig(1.0), "messages": MessagesConfig(bits=8)},
        "cannot be combined",
    ),
    "too few groups": (
        {
            "rule": {"rule": "median", "byzantine": 1},
            "messages": MessagesConfig(secure_sum=True, groups=2),
        },
        "median needs 3 groups against 1 faulty sites, .* at least 3 groups and 6 sites",
    ),
    "groups without masks": (
        {"rule": {"rule": "median"}, "messages": MessagesConfig(groups=2)},
        "messages.groups is 2, which needs messages.secure_sum and a robust federation.rule",
    ),
    "noise of sites without masks": (
        {"privacy": PrivacyConfig(1.0, added_by="sites")},
        'privacy.added_by is "sites", which needs messages.secure_sum',
    ),
    "sites that a distrusted server draws": (
        {"rule": {"participation": 0.5}, "messages": MessagesConfig(secure_sum=True),
         "privacy": PrivacyConfig(1.0, added_by="sites")},
        "leave federation.participation at 1",
    ),
    "one honest site": (
        {"messages": MessagesConfig(secure_sum=True),
         "privacy": PrivacyConfig(1.0, added_by="sites", dishonest=4)},
        "privacy.dishonest is 4, but among 5 sites there must be 2 honest ones",
    ),
    "two sites behind masks": (
        {"chosen": ["site0", "site1"], "messages": MessagesConfig(secure_sum=True)},
        "needs three sites",
    ),
    "an unreached site": (
        {"rule": {"rule": "gossip"},
         "gossip": GossipConfig(graph="links", links=(("site0", "site1"),))},
        "do not connect all sites",
    ),
    "an unknown neighbour": (
        {"rule": {"rule": "gossip"},
         "gossip": GossipConfig(graph="links", links=(("site0", "sitO1"),))},
        "did you mean 'site",
    ),
    "groups that do not hold all sites": (
        {"rule": {"rule": "gossip"},
         "gossip": GossipConfig(graph="hierarchical", groups=(2, 2))},
        r"gossip.groups is \[2, 2\].*whose product is the 5 sites",
    ),
    "an unknown faulty site": ({"faults": [Fault("sit1")]}, "did you mean 'site1'"),
    "one site": ({"chosen": ["site0"]}, "a federation needs two sites or more, got 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", TOGETHER)
def test_settings_that_exclude_each_other_are_refused_in_one_line(case, run):
    options, words = TOGETHER[case]
    with pytest.raises(InputError, match=words) as error:
        run(**options)
    assert "\n" not in str(error.value)


def test_a_round_traces_nothing_that_an_earlier_one_did_not(run):
    from neorl_agents.learning import train_chunk

    before = train_chunk._cache_size()  # pyright: ignore
    run(seed=5)
    assert train_chunk._cache_size() == before  # pyright: ignore


def test_a_rule_without_a_program_is_no_mean():
    updates, shares = np.ones((5, 2), np.float32), np.full(5, 0.2)
    federation = types.SimpleNamespace(rule="new", byzantine=1, radius=1.0)
    with pytest.raises(ValueError, match="no program computes the rule 'new'"):
        combine(federation, updates, shares)
    federation.rule = "mean"
    np.testing.assert_allclose(combine(federation, updates, shares)[0], [1.0, 1.0])
