"""Signs that training went wrong, from its records."""

import numpy as np
import pytest

from neorl_train.judging import training_signs, unconverged, without_safe_actions

DEFAULTS = {"tau": 0.005, "discount": 0.99, "policy_delay": 2}
"""Cost critics then need 40,000 updates."""


def line(algorithm, seed, step, **metrics):
    return {"kind": "chunk", "algorithm": algorithm, "seed": seed, "step": step, "metrics": metrics}


def test_values_beyond_the_rewards_are_named_with_seeds_and_share():
    records = [
        line("td3_bc", 0, 500, q_beyond_rewards=0.0),
        line("td3_bc", 1, 500, q_beyond_rewards=0.0),
        line("td3_bc", 0, 1000, q_beyond_rewards=0.31),
        line("td3_bc", 1, 1000, q_beyond_rewards=0.001),
        line("bc", 0, 1000, actor_loss=0.1),
    ]
    (sentence,) = training_signs(records, {})
    assert sentence.startswith("td3_bc: 1 of 2 seeds value up to 31")
    assert "beyond any return that the log's rewards allow" in sentence


def test_values_far_from_the_rewards_are_named():
    records = [line("iql", 0, 500, q_off_rewards=6.4), line("iql", 1, 500, q_off_rewards=2.9)]
    (sentence,) = training_signs(records, {})
    assert sentence.startswith(
        "iql: 1 of 2 seeds have values that correspond to a mean reward per step"
    )
    assert "6.4 standard deviations from the log's" in sentence


def test_weights_on_few_rows_and_at_the_ceiling_are_named():
    first, second = training_signs([line("iql", 0, 500, effective_sample=0.02, at_ceiling=0.5)], {})
    assert "learn from as little as 2" in first
    assert "give up to 50" in second


def test_actors_that_stand_at_a_bound_are_named():
    records = [
        line("rebrac", 0, 500, held_at_bound=0.4),
        line("rebrac", 1, 500, held_at_bound=0.05),
    ]
    (sentence,) = training_signs(records, {})
    assert sentence.startswith("rebrac: 1 of 2 seeds hold up to 40")
    assert "no gradient passes there" in sentence


def test_only_the_last_chunk_counts_and_a_sound_run_says_nothing():
    sound = {
        "q_beyond_rewards": 0.0,
        "q_off_rewards": 1.0,
        "effective_sample": 0.6,
        "at_ceiling": 0.01,
        "held_at_bound": 0.0,
    }
    records = [line("iql", 0, 500, effective_sample=0.01), line("iql", 0, 1000, **sound)]
    assert training_signs([*records, {**line("iql", 0, 1000), "kind": "validation"}], {}) == []


def cost_curve(updates, rate, *, seeds=(0,), level=8.0, noise=0.0):
    """Records of cost critics that approach a level exponentially, ``rate`` per update."""
    rng = np.random.default_rng(0)
    steps = np.arange(1, 1 + updates // 500) * 500
    values = level * (1 - np.exp(-rate * steps)) + noise * rng.normal(size=len(steps))
    return [
        line("td3_bc_lag", seed, int(step), cost_q=float(value))
        for seed in seeds
        for step, value in zip(steps, values, strict=True)
    ]


def test_a_training_shorter_than_cost_critics_need_has_not_converged():
    records = cost_curve(5_000, 1 / 40_000)
    sentence = unconverged(records, {"td3_bc_lag": DEFAULTS})["td3_bc_lag"]
    assert sentence == (
        "td3_bc_lag has not converged: cost critics need about 40,000 updates to predict a whole "
        "episode, and there were 5,000; train longer, or raise tau"
    )
    assert training_signs(records, {"td3_bc_lag": DEFAULTS}) == [sentence]


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_training_of_one_and_a_half_times_that_length_has_converged(noise):
    """At 60,000 updates the critics predict 78 percent of their level."""
    records = cost_curve(60_000, 1 / 40_000, noise=noise)
    assert unconverged(records, {"td3_bc_lag": DEFAULTS}) == {}


def test_costs_that_still_drift_at_the_end_are_named_with_their_seeds():
    records = cost_curve(60_000, 1 / 40_000) + cost_curve(60_000, 1 / 400_000, seeds=(1,))
    sentence = unconverged(records, {"td3_bc_lag": DEFAULTS})["td3_bc_lag"]
    # Linear growth over 57,000 updates: a further 40,000 add 40 / 57 less the curvature.
    assert sentence.startswith(
        "td3_bc_lag has not converged: in 1 of 2 seeds the predicted cost still drifts, by up to 6"
    )


def test_learners_without_cost_critics_or_targets_that_lag_are_left_out():
    records = [line("bc", 0, 500, actor_loss=0.1), *cost_curve(5_000, 1 / 40_000)]
    assert unconverged(records, {"td3_bc_lag": {**DEFAULTS, "discount": 1.0}}) == {}
    assert unconverged(records, {}) == {}
    # Targets that follow at once need 100 updates; 5,000 of a constant prediction are enough.
    assert unconverged(cost_curve(5_000, 1.0), {"td3_bc_lag": {"tau": 1.0, "discount": 0.99}}) == {}


def test_a_policy_of_which_no_action_counts_as_safe_is_named_for_any_learner():
    """It names seeds, forgets what is past, and says nothing of one with a few safe actions."""
    records = [
        *(line("mine", seed, 500, safe_actions=0.4 * seed) for seed in (0, 1)),
        *(line("mine", seed, 1000, safe_actions=share) for seed, share in ((0, 0.2), (1, 0.0))),
        line("cpq", 0, 1000, safe_actions=0.01),
    ]
    assert without_safe_actions(records[:2])["mine"].startswith("mine: 1 of 2 seeds count no")
    assert without_safe_actions(records) == {
        "mine": "mine: 1 of 2 seeds count no action of their policy as safe, so nothing moves it: "
        "take another learner, or wider limits"
    }
    assert training_signs(records, {}) == list(without_safe_actions(records).values())


def test_one_that_diverged_is_named_alone():
    records = [line("iql", 0, 500, effective_sample=0.01), line("bc", 0, 500, actor_loss=0.1)]
    diverged = {"iql": {"error": "IQL diverged: loss of seed 0 is nan"}}
    assert training_signs(records, {}, diverged) == [
        "iql is in no comparison: IQL diverged: loss of seed 0 is nan"
    ]
