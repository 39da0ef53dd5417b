"""Signs that training went wrong, from its records."""

from neorl_train.judging import training_signs


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
    (sentence,) = training_signs(records)
    assert sentence.startswith("td3_bc: 1 of 2 seeds value up to 31")
    assert "beyond any return that the log's rewards allow" in sentence


def test_values_far_from_the_rewards_are_named():
    records = [line("iql", 0, 500, q_off_rewards=6.4), line("iql", 1, 500, q_off_rewards=2.9)]
    (sentence,) = training_signs(records)
    assert sentence.startswith(
        "iql: 1 of 2 seeds have values that correspond to a mean reward per step"
    )
    assert "6.4 standard deviations from the log's" in sentence


def test_weights_on_few_rows_and_at_the_ceiling_are_named():
    first, second = training_signs([line("iql", 0, 500, effective_sample=0.02, at_ceiling=0.5)])
    assert "learn from as little as 2" in first
    assert "give up to 50" in second


def test_actors_that_stand_at_a_bound_are_named():
    records = [
        line("rebrac", 0, 500, held_at_bound=0.4),
        line("rebrac", 1, 500, held_at_bound=0.05),
    ]
    (sentence,) = training_signs(records)
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
    assert training_signs([*records, {**line("iql", 0, 1000), "kind": "validation"}]) == []
