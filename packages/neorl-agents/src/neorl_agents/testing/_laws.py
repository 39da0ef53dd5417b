"""Laws that every learner satisfies, whatever its equations, also of rows that a mask excludes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.artefact import policy_actions
from neorl_agents.learning import (
    Algorithm,
    Learner,
    LearnerState,
    check_algorithm,
    require_policy,
)
from neorl_agents.testing._problem import (
    Subject,
    batch_of,
    endless,
    equal,
    fresh_state,
    in_other_units,
    make_problem,
    masked,
    one_step_task,
    side_by_side,
    task_reward,
    traces,
    updated,
    with_rates,
    with_rows,
)
from neorl_core import Transition, highs, lows
from neorl_core.testing import assert_close, assert_stable

ROUNDING = np.finfo(np.float32).eps
"""Relative change of the data whose effect counts as that of rounding."""

# The laws of masked rows: they have no effect, whatever they hold.


def masked_rows_are_inert(subject: Subject) -> None:
    plain, algorithm, state = subject.started()
    batch, key = jax.device_get(subject.problem.batch(plain)), jax.random.key(1)
    shape = (plain.batches_per_update, plain.batch_size)
    mask = np.random.default_rng(5).uniform(size=shape) < 0.6

    def spoiled(rows: Transition) -> Transition:
        def column(x: Any) -> Any:
            if x is None or x.dtype == bool:
                return x
            kept = mask.reshape(mask.shape + (1,) * (x.ndim - 2))
            return np.where(kept, x, np.asarray(np.nan, x.dtype))

        ends = None if rows.terminated is None else rows.terminated ^ ~mask
        return jax.tree.map(column, rows)._replace(mask=mask, terminated=ends)

    clean, _ = updated(algorithm, state, masked(batch, mask), key)
    spoilt, metrics = updated(algorithm, state, with_rows(batch, spoiled), key)
    reached = "NaN in masked rows reach the state: use the rows that `learn` is given"
    chex.assert_trees_all_equal(clean, spoilt, custom_message=reached)
    for name, metric in metrics.items():
        assert np.isfinite(metric), f"masked rows with NaN in them reach metric {name}"
    everything, _ = updated(algorithm, state, masked(batch, np.ones_like(mask)), key)
    unmasked, _ = updated(algorithm, state, batch, key)
    assert_close(everything, unmasked, rtol=1e-3, atol=1e-5)
    assert not equal(clean, everything), "the mask changes nothing, so update does not use it"
    _require_that_masked_rows_weigh_nothing(subject)


def _require_that_masked_rows_weigh_nothing(subject: Subject) -> None:
    """Duplicated rows give the same means as single rows with the duplicates masked."""
    plain, algorithm, state = subject.started()
    algorithm = with_rates(algorithm, 10.0)
    shape, half = (plain.batches_per_update, plain.batch_size), plain.batch_size // 2
    for i in range(3):  # A fresh network maps masked rows, which are zeros, to zeros.
        batch = batch_of(subject.problem, plain, seed=i)
        state, _ = updated(algorithm, state, batch, jax.random.key(i))
    place = np.arange(plain.batch_size)
    again = np.where(place < half, place, place - half)
    twice = jax.tree.map(lambda x: x[:, again] if x.shape[:2] == shape else x, batch)
    once, both = (masked(twice, np.broadcast_to(place < rows, shape)) for rows in (half, 2 * half))
    means, _ = updated(algorithm, state, both, jax.random.key(1))
    drawn, _ = updated(algorithm, state, both, jax.random.key(2))
    if equal(means, drawn):
        same, _ = updated(algorithm, state, once, jax.random.key(1))
        message = "masked rows have weight in a mean: use masked_mean(loss, rows.mask)"
        assert_close(same, means, rtol=1e-3, atol=1e-5, message=message)


def masked_rows_are_in_no_loss(subject: Subject) -> None:
    """If observations are shifted, only the blanks in masked rows look different.

    A loss that averages over all rows, including blanks, satisfies the law above but not this one.
    """
    plain, algorithm, state = subject.started()
    maps = state.preparation
    if maps.window:
        return  # Windows carry their own flags for blanks.
    shape = (plain.batches_per_update, plain.batch_size)
    mask = np.random.default_rng(5).uniform(size=shape) < 0.6
    batch, learners = jax.device_get(subject.problem.batch(plain)), []
    for steps in (0.0, 1.0):  # Blanks at the mean of the log, and one standard deviation away.
        offset = np.float32(steps) * _coarse(maps.obs.scale)
        change = offset - _coarse(maps.obs.offset)
        moved = eqx.tree_at(lambda s: s.preparation.obs.offset, state, offset)
        rows = with_rows(batch, partial(_moved_by, change=change, mask=mask))
        new, _ = updated(algorithm, moved, rows, jax.random.key(1))
        learners.append(eqx.tree_at(lambda s: s.preparation.obs.offset, new, np.zeros_like(offset)))
    others = dict(jax.tree.leaves_with_path(learners[1]))
    for path, leaf in jax.tree.leaves_with_path(learners[0]):
        where = jax.tree_util.keystr(path)
        assert np.array_equal(leaf, others[path]), f"masked rows influence {where}"


def _moved_by(rows: Transition, change: Any, mask: Any) -> Transition:
    def moved(obs: Any) -> Any:
        return None if obs is None else _coarse(obs) + np.broadcast_to(change, obs.shape)

    return rows._replace(obs=moved(rows.obs), next_obs=moved(rows.next_obs), mask=mask)


def _coarse(x: Any) -> Any:
    # Rounded, so that sums of such numbers are exact in float32.
    return np.round(np.asarray(x) * 64) / 64


def nothing_is_learned_where_every_row_is_masked(subject: Subject) -> None:
    plain, algorithm, state = subject.started()
    shape = (plain.batches_per_update, plain.batch_size)
    nothing = masked(batch_of(subject.problem, plain), np.zeros(shape, bool))
    new, metrics = updated(algorithm, state, nothing, jax.random.key(1))
    chex.assert_tree_all_finite((new, metrics))


# Laws that every learner satisfies, whatever its equations; all share one compiled update.


Law = Callable[[], None]


def algorithm_laws(make: Callable[[], Algorithm]) -> dict[str, Law]:
    """The laws of one learner by name; each raises an error that says how it is broken.

    Args:
        make: Function that makes the learner, preferably with small networks and batches:
            ``lambda: sized(CRR(), hidden=(8, 8), batch_size=32)``. It must still train with
            learning rates ten times as large.

    Returns:
        Functions without arguments, for ``pytest.mark.parametrize``.
    """
    laws = (
        _it_has_the_face_of_an_algorithm,
        *_OF_EVERY_LEARNER,
        _the_actions_stay_in_their_box,
        _the_same_plant_in_other_units_gives_the_same_policy,
        _centred_rewards_hide_a_constant,
        _a_one_step_task_is_learned,
    )
    return _about(make, laws)


def learner_laws(make: Callable[[], Learner]) -> dict[str, Law]:
    """The laws of a learner without a policy, by name: a model of the plant, a critic.

    Args:
        make: Function that makes the learner, preferably with small networks and batches.

    Returns:
        Functions without arguments, for ``pytest.mark.parametrize``.
    """
    laws = (
        _it_has_the_face_of_a_learner,
        *_OF_EVERY_LEARNER,
        _the_same_plant_in_other_units_gives_the_same_parameters,
    )
    return _about(make, laws)


def _about(make: Callable[[], Learner], laws: tuple[Callable[["Subject"], None], ...]) -> Any:
    subject = Subject(make)
    return {law.__name__.strip("_"): partial(law, subject) for law in laws}


def _it_has_the_face_of_an_algorithm(subject: Subject) -> None:
    plain, _, state = subject.started()
    check_algorithm("subject", type(plain))
    require_policy(plain, state, subject.problem.spec)
    _it_has_the_face_of_a_learner(subject)


def _it_has_the_face_of_a_learner(subject: Subject) -> None:
    plain, _, _ = subject.started()
    assert isinstance(plain, Learner), f"{type(plain).__name__} is not a neorl_agents.Learner"
    plain.validate()
    assert isinstance(plain.batches_per_update, int), "batches_per_update must be an integer"
    same = hash(jax.tree.structure(plain)) == hash(jax.tree.structure(subject.make()))
    assert same, "two learners with the same values differ in their static fields"


def _the_state_has_named_parts(subject: Subject) -> None:
    _, _, state = subject.started()
    assert isinstance(state, LearnerState), (
        f"init must return a LearnerState, got a {type(state).__name__}"
    )
    parameters, optimisers = set(state.parameters), set(state.optimisers)
    differ = ", ".join(sorted(parameters ^ optimisers))
    assert not differ, f"{differ}: parameters and optimisers must have the same names"
    for name, slow in state.targets.items():
        assert name in parameters, f"no parameter has the name of the target {name!r}"
        message = f"the target {name!r} must have the shapes and dtypes of its parameter"
        chex.assert_trees_all_equal_shapes_and_dtypes(
            slow, state.parameters[name], custom_message=message
        )
    assert "updates" in state.counters, (
        "counters must have 'updates', the number of calls of update"
    )
    assert set(state.context) == set(subject.started()[0].fits()), (
        "context must have the names that fits() gives"
    )


def _an_update_changes_no_map_and_no_context_and_is_counted(subject: Subject) -> None:
    plain, algorithm, state = subject.started()
    for i in range(2):
        batch = batch_of(subject.problem, plain, seed=i)
        new, _ = updated(algorithm, state, batch, jax.random.key(i))
        for part in ("preparation", "context"):
            before, after = getattr(state, part), getattr(new, part)
            chex.assert_trees_all_equal(
                before, after, custom_message=f"update must not change {part}"
            )
        counts = int(state.updates), int(new.updates)
        assert counts == (i, i + 1), (
            f"update must raise counters['updates'] by one, from {i} to {i + 1}, got {counts}"
        )
        state = new


def _a_preparation_may_be_given(subject: Subject) -> None:
    """Sites with the same key then start equal: nothing else of a site is in its fresh state."""
    plain, _, state = subject.started()
    problem, other = subject.problem, make_problem(seed=1)
    one, again = (plain.prepare(problem.spec, problem.statistics) for _ in range(2))
    chex.assert_trees_all_equal(one, again, custom_message="prepare is not deterministic")
    with_preparation = fresh_state(plain, problem, preparation=one)
    message = "init with the preparation of prepare differs from init without one"
    chex.assert_trees_all_equal(with_preparation, state, custom_message=message)
    elsewhere = plain.init(
        problem.spec, other.statistics, jax.random.key(0), preparation=one, context=state.context
    )
    message = "init must not read the statistics when a preparation is given"
    chex.assert_trees_all_equal(elsewhere, state, custom_message=message)


def _other_values_compile_nothing(subject: Subject) -> None:
    plain, algorithm, state = subject.started()
    batch = batch_of(subject.problem, plain)
    new, _ = updated(algorithm, state, batch, jax.random.key(1))
    before = len(traces)
    updated(algorithm, new, batch_of(subject.problem, plain, seed=1), jax.random.key(2))
    other = jax.tree.map(lambda x: x * 0.5 if x.dtype == jnp.float32 else x, algorithm)
    updated(other, new, batch, jax.random.key(3))
    assert len(traces) == before, (
        "another batch, state or hyperparameter must not cause a new compilation"
    )


def _every_leaf_is_a_strong_array_and_keeps_its_form(subject: Subject) -> None:
    plain, algorithm, state = subject.started()
    new, metrics = updated(algorithm, state, batch_of(subject.problem, plain), jax.random.key(1))
    policy = plain.policy(new) if isinstance(plain, Algorithm) else ()
    parts = {"state": state, "new": new, "metrics": metrics, "policy": policy}
    for path, leaf in jax.tree.leaves_with_path(parts):
        where = jax.tree_util.keystr(path)
        assert isinstance(leaf, jax.Array), f"{where} must be an array, got a {type(leaf).__name__}"
        assert not leaf.weak_type, f"{where} has a weak type; make it with jnp.asarray(x, dtype)"
        assert leaf.dtype in (jnp.float32, jnp.int32), (
            f"{where} must be float32 or int32, got {leaf.dtype}"
        )
    chex.assert_trees_all_equal_shapes_and_dtypes(state, new)
    for name, metric in metrics.items():
        assert np.isfinite(metric), f"metric {name} must be finite, got {metric}"


def _update_is_pure(subject: Subject) -> None:
    plain, algorithm, state = subject.started()
    before = jax.tree.map(np.array, state)
    batch = batch_of(subject.problem, plain)
    one, _ = updated(algorithm, state, batch, jax.random.key(1))
    other, _ = updated(algorithm, state, batch, jax.random.key(1))
    chex.assert_trees_all_equal(one, other)
    chex.assert_trees_all_equal(state, before)
    assert not equal(one, state), "an update must change the state"


def _a_sweep_by_vmap_is_its_single_runs(subject: Subject) -> None:
    plain, algorithm, state = subject.started()
    batch, keys = batch_of(subject.problem, plain), jax.random.split(jax.random.key(1), 2)
    faster = with_rates(algorithm, 10.0)
    sweep = jax.tree.map(lambda *leaves: np.stack(leaves), algorithm, faster)
    swept = jax.device_get(side_by_side(sweep, state, batch, keys))
    for i, one in enumerate((algorithm, faster)):

        def single(batch: Any, one: Any = one, key: Any = keys[i]) -> Any:
            return updated(one, state, batch, key)[0]

        effect = partial(_effect_of_rounding, single, batch)
        mine = jax.tree.map(lambda leaf, i=i: leaf[i], swept)
        message = "vmap differs from a single run"
        assert_stable(mine, single(batch), effect, rtol=1e-3, atol=1e-5, message=message)
    both = (jax.tree.map(lambda leaf, i=i: leaf[i], swept) for i in range(2))
    assert not equal(*both), (
        "ten times the learning rates change nothing, so update does not use them"
    )


def _effect_of_rounding(update: Callable[[Any], Any], batch: Any) -> Any:
    """The largest change of a new state if each number of the batch is rounded up or down.

    It may be a whole step: Adam divides by the size of a gradient, so where that is nearly zero,
    rounding decides the direction.
    """
    rng, middle = np.random.default_rng(0), update(batch)

    def rounded(x: Any) -> Any:
        if x.dtype != np.float32:
            return x
        return np.asarray(x) * (1 + ROUNDING * rng.choice(np.array([-1, 1], np.float32), x.shape))

    def change(new: Any, old: Any) -> Any:
        return np.abs(np.subtract(new, old, dtype=np.float64))

    total = jax.tree.map(lambda leaf: np.zeros(leaf.shape), middle)
    for _ in range(3):
        changes = jax.tree.map(change, update(jax.tree.map(rounded, batch)), middle)
        total = jax.tree.map(np.maximum, total, changes)
    return total


def _hard_data_stay_finite(subject: Subject) -> None:
    _trained_on_hard_data(subject)


def _the_actions_stay_in_their_box(subject: Subject) -> None:
    """For a policy trained on hard data, even if a channel has values far from those in the log."""
    plain, problem = subject.started()[0], subject.problem
    state = _trained_on_hard_data(subject)
    obs = np.asarray(problem.log.obs)[:8] + np.eye(4, dtype=np.float32)[3]
    actions = np.asarray(policy_actions(plain.policy(state), obs))
    low, high = (np.asarray(end(problem.spec.action), np.float32) for end in (lows, highs))
    inside = np.all((low <= actions) & (actions <= high))
    assert inside, f"actions from {actions.min(0)} to {actions.max(0)} exceed the range"


def _trained_on_hard_data(subject: Subject) -> Any:
    """Trains on actions at a bound, a constant channel, no reward; then on rewards of millions."""
    if subject.hardened is not None:
        return subject.hardened
    plain, algorithm, _ = subject.started()
    problem = subject.problem
    high = np.asarray(highs(problem.spec.action), np.float32)

    def hard(rows: Transition) -> Transition:
        return rows._replace(
            action=np.broadcast_to(high, rows.action.shape),
            reward=None if rows.reward is None else np.zeros_like(rows.reward),
        )

    def of_millions(rows: Transition) -> Transition:
        # Larger than in the statistics, so that no scaling of the reward removes it.
        if rows.reward is None:
            return rows
        return rows._replace(reward=np.float32(3e6) * (rows.reward - 1))

    state = fresh_state(plain, problem)
    for change, updates in ((hard, 100), (of_millions, 20)):
        batch = with_rows(batch_of(problem, plain), change)
        for i in range(updates):
            state, metrics = updated(algorithm, state, batch, jax.random.key(i))
        chex.assert_tree_all_finite((state, metrics))
    subject.hardened = state
    return state


def _the_state_is_a_function_of_the_key(subject: Subject) -> None:
    plain, _, state = subject.started()
    problem = subject.problem
    chex.assert_trees_all_equal(state, fresh_state(plain, problem))
    other = fresh_state(plain, problem, seed=1)
    assert not equal(state, other), "another key must give another state"


def _the_same_plant_in_other_units_gives_the_same_policy(subject: Subject) -> None:
    plain, algorithm, _ = subject.started()
    units = []
    for problem in (subject.problem, in_other_units(subject.problem)):
        state = fresh_state(plain, problem)
        for i in range(3):
            batch = batch_of(problem, plain, seed=i)
            state, _ = updated(algorithm, state, batch, jax.random.key(i))
        obs = np.asarray(problem.log.obs)[:32]
        actions = np.asarray(policy_actions(plain.policy(state), obs))
        low, high = (np.array(end(problem.spec.action)) for end in (lows, highs))
        units.append(2 * (actions - low) / (high - low) - 1)
    message = "other units change the policy: use the rows that `learn` is given"
    # Three steps of Adam may enlarge the rounding of units; wrong units change far more.
    np.testing.assert_allclose(units[1], units[0], atol=5e-4, err_msg=message)


def _centred_rewards_hide_a_constant(subject: Subject) -> None:
    """If a learner centres rewards, this holds for n-step sums and returns to go too."""
    plain, algorithm, _ = subject.started()
    obs, actions = np.asarray(subject.problem.log.obs)[:32], []
    for constant in (0.0, 64.0):
        problem = endless(subject.problem, constant)
        state = fresh_state(plain, problem)
        if "reward" not in plain.fields or not state.preparation.reward_offset:
            return
        for i in range(3):
            batch = batch_of(problem, plain, seed=i)
            state, _ = updated(algorithm, state, batch, jax.random.key(i))
        actions.append(np.asarray(policy_actions(plain.policy(state), obs)))
    span = np.subtract(*(np.array(end(subject.problem.spec.action)) for end in (highs, lows)))
    message = "a constant in centred rewards changes the policy: use the rows that `learn` is given"
    np.testing.assert_allclose(actions[1] / span, actions[0] / span, atol=2e-4, err_msg=message)


def _the_same_plant_in_other_units_gives_the_same_parameters(subject: Subject) -> None:
    plain, algorithm, _ = subject.started()
    units = []
    for problem in (subject.problem, in_other_units(subject.problem)):
        state = fresh_state(plain, problem)
        for i in range(3):
            state, _ = updated(
                algorithm, state, batch_of(problem, plain, seed=i), jax.random.key(i)
            )
        units.append(state.parameters)
    message = "other units change what is learned: use the rows that `learn` is given"
    assert_close(*units, rtol=1e-3, atol=1e-4, message=message)


def _a_one_step_task_is_learned(subject: Subject) -> None:
    """On average over observations, the policy earns more than the log's uniform actions."""
    plain, algorithm, _ = subject.started()
    problem = one_step_task()
    state = fresh_state(plain, problem)
    fast = with_rates(algorithm, 10.0)
    batches = [batch_of(problem, plain, seed=i) for i in range(8)]
    for i in range(300):
        state, _ = updated(fast, state, batches[i % 8], jax.random.key(i))
    actions = np.asarray(policy_actions(plain.policy(state), problem.log.obs))
    low, high = (np.array(end(problem.spec.action)) for end in (lows, highs))
    earned = task_reward(2 * (actions - low) / (high - low) - 1).mean()
    logged = float(np.mean(problem.log.reward))
    assert earned > logged, (
        f"the policy earns {earned:.3g}, not more than the log's random actions ({logged:.3g})"
    )


_OF_EVERY_LEARNER: tuple[Callable[[Subject], None], ...] = (
    _the_state_has_named_parts,
    _an_update_changes_no_map_and_no_context_and_is_counted,
    _a_preparation_may_be_given,
    _other_values_compile_nothing,
    _every_leaf_is_a_strong_array_and_keeps_its_form,
    _update_is_pure,
    _a_sweep_by_vmap_is_its_single_runs,
    masked_rows_are_inert,
    masked_rows_are_in_no_loss,
    nothing_is_learned_where_every_row_is_masked,
    _hard_data_stay_finite,
    _the_state_is_a_function_of_the_key,
)
