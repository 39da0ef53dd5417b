"""What every learner keeps, whatever its equations; one compiled update serves all laws."""

from collections.abc import Callable
from dataclasses import fields, replace
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
    BaseLearner,
    LearnerState,
    check_algorithm,
    require_answer,
    require_policy,
)
from neorl_agents.testing._problem import (
    Problem,
    in_other_units,
    make_problem,
    one_step_task,
    task_reward,
)
from neorl_core import Transition, as_arrays, highs, lows
from neorl_core.testing import assert_close

Law = Callable[[], None]
_traces = 0


def algorithm_laws(make: Callable[[], Algorithm]) -> dict[str, Law]:
    """The laws of one learner by name; each raises an error that says how it is broken.

    Args:
        make: Function that makes the learner, best with small networks and batches: ``lambda:
            sized(CRR(), hidden=(8, 8), batch_size=32)``. Rates ten times as large must still train
            it.

    Returns:
        Functions without arguments, for ``pytest.mark.parametrize``.
    """
    laws = (
        _it_has_the_face_of_an_algorithm,
        _the_state_has_named_parts,
        _an_update_changes_no_map_and_no_context_and_is_counted,
        _a_preparation_may_be_given,
        _other_values_compile_nothing,
        _every_leaf_is_a_strong_array_and_keeps_its_form,
        _update_is_pure,
        _a_sweep_by_vmap_is_its_single_runs,
        _masked_rows_are_inert,
        _masked_rows_are_in_no_loss,
        _nothing_is_learned_where_every_row_is_masked,
        _hard_data_stay_finite,
        _the_state_is_a_function_of_the_key,
        _the_same_plant_in_other_units_gives_the_same_policy,
        _a_one_step_task_is_learned,
    )
    subject = _Subject(make)
    return {law.__name__.strip("_"): partial(law, subject) for law in laws}


@jax.jit
def _updated(algorithm: Algorithm, state: Any, batch: Any, key: Any) -> Any:
    global _traces
    _traces += 1
    return require_answer(algorithm, state, algorithm.update(state, batch, key))


@jax.jit
def _side_by_side(algorithms: Algorithm, state: Any, batch: Any, keys: Any) -> Any:
    return jax.vmap(lambda one, key: one.update(state, batch, key)[0])(algorithms, keys)


class _Subject:
    """A learner with a state, made when first asked for."""

    def __init__(self, make: Callable[[], Algorithm]) -> None:
        self.make = make
        self.problem = make_problem()
        self._started: tuple[Any, Any, Any] | None = None

    def started(self) -> tuple[Any, Any, Any]:
        """The learner, the same with array leaves, and a fresh state."""
        if self._started is None:
            plain = self.make()
            self._started = plain, as_arrays(plain), self.fresh(plain, self.problem)
        return self._started

    @staticmethod
    def fresh(plain: Any, problem: Problem, seed: int = 0, **given: Any) -> Any:
        """A fresh state; what is to be fitted before it is fresh too."""
        fits = plain.fits()
        context = {name: _Subject.fresh(fits[name].learner, problem) for name in fits}
        key = jax.random.key(seed)
        return plain.init(problem.spec, problem.statistics, key, context=context, **given)


def _it_has_the_face_of_an_algorithm(subject: _Subject) -> None:
    plain, _, state = subject.started()
    check_algorithm("subject", type(plain))
    require_policy(plain, plain.policy(state))
    assert isinstance(plain.batches_per_update, int), "batches_per_update must be a whole number"
    same = hash(jax.tree.structure(plain)) == hash(jax.tree.structure(subject.make()))
    assert same, "two learners of the same values differ in their static fields"


def _the_state_has_named_parts(subject: _Subject) -> None:
    _, _, state = subject.started()
    assert isinstance(state, LearnerState), (
        f"init returns a {type(state).__name__}, no LearnerState"
    )
    parameters, optimisers = set(state.parameters), set(state.optimisers)
    differ = ", ".join(sorted(parameters ^ optimisers))
    assert not differ, f"{differ}: every parameter has an optimiser of its name, and no other name"
    for name, slow in state.targets.items():
        assert name in parameters, f"the target {name!r} is of no parameter"
        message = f"the target {name!r} has another form than its parameter"
        chex.assert_trees_all_equal_shapes_and_dtypes(
            slow, state.parameters[name], custom_message=message
        )
    assert "updates" in state.counters, "counters have no 'updates', the calls of update"
    assert set(state.context) == set(subject.started()[0].fits()), "context is not what was fitted"


def _an_update_changes_no_map_and_no_context_and_is_counted(subject: _Subject) -> None:
    plain, algorithm, state = subject.started()
    for i in range(2):
        batch = subject.problem.batch(plain, seed=i)
        new, _ = _updated(algorithm, state, batch, jax.random.key(i))
        for part in ("preparation", "context"):
            before, after = getattr(state, part), getattr(new, part)
            chex.assert_trees_all_equal(before, after, custom_message=f"update changes {part}")
        counts = int(state.updates), int(new.updates)
        assert counts == (i, i + 1), f"counters['updates'] goes from {counts[0]} to {counts[1]}"
        state = new


def _a_preparation_may_be_given(subject: _Subject) -> None:
    """So that sites with one key start equal: nothing else of a site is in its fresh state."""
    plain, _, state = subject.started()
    problem, other = subject.problem, make_problem(seed=1)
    one, again = (plain.prepare(problem.spec, problem.statistics) for _ in range(2))
    chex.assert_trees_all_equal(one, again, custom_message="prepare is not deterministic")
    given = subject.fresh(plain, problem, preparation=one)
    message = "init with the preparation of prepare differs from init without one"
    chex.assert_trees_all_equal(given, state, custom_message=message)
    elsewhere = plain.init(
        problem.spec, other.statistics, jax.random.key(0), preparation=one, context=state.context
    )
    message = "init reads statistics although a preparation is given"
    chex.assert_trees_all_equal(elsewhere, state, custom_message=message)


def _other_values_compile_nothing(subject: _Subject) -> None:
    plain, algorithm, state = subject.started()
    batch = subject.problem.batch(plain)
    new, _ = _updated(algorithm, state, batch, jax.random.key(1))
    before = _traces
    _updated(algorithm, new, subject.problem.batch(plain, seed=1), jax.random.key(2))
    other = jax.tree.map(lambda x: x * 0.5 if x.dtype == jnp.float32 else x, algorithm)
    _updated(other, new, batch, jax.random.key(3))
    assert _traces == before, "another batch, state or hyperparameter compiled again"


def _every_leaf_is_a_strong_array_and_keeps_its_form(subject: _Subject) -> None:
    plain, algorithm, state = subject.started()
    new, metrics = _updated(algorithm, state, subject.problem.batch(plain), jax.random.key(1))
    parts = {"state": state, "new": new, "metrics": metrics, "policy": plain.policy(new)}
    for path, leaf in jax.tree.leaves_with_path(parts):
        where = jax.tree_util.keystr(path)
        assert isinstance(leaf, jax.Array), f"{where} is a {type(leaf).__name__}, no array"
        assert not leaf.weak_type, f"{where} has a weak type; make it with jnp.asarray(x, dtype)"
        assert leaf.dtype in (jnp.float32, jnp.int32), f"{where} is {leaf.dtype}"
    chex.assert_trees_all_equal_shapes_and_dtypes(state, new)
    for name, metric in metrics.items():
        assert np.isfinite(metric), f"metric {name} is {metric}"


def _update_is_pure(subject: _Subject) -> None:
    plain, algorithm, state = subject.started()
    before = jax.tree.map(np.array, state)
    batch = subject.problem.batch(plain)
    one, _ = _updated(algorithm, state, batch, jax.random.key(1))
    other, _ = _updated(algorithm, state, batch, jax.random.key(1))
    chex.assert_trees_all_equal(one, other)
    chex.assert_trees_all_equal(state, before)
    assert not _equal(one, state), "an update changed nothing"


def _a_sweep_by_vmap_is_its_single_runs(subject: _Subject) -> None:
    plain, algorithm, state = subject.started()
    batch, keys = subject.problem.batch(plain), jax.random.split(jax.random.key(1), 2)
    faster = _with_rates(algorithm, 10.0)
    sweep = jax.tree.map(lambda *leaves: jnp.stack(leaves), algorithm, faster)
    swept = _side_by_side(sweep, state, batch, keys)
    for i, one in enumerate((algorithm, faster)):
        single, _ = _updated(one, state, batch, keys[i])
        mine = jax.tree.map(lambda leaf, i=i: leaf[i], swept)
        assert_close(mine, single, rtol=1e-3, atol=1e-5, message="vmap differs from a single run")
    both = (jax.tree.map(lambda leaf, i=i: leaf[i], swept) for i in range(2))
    assert not _equal(*both), "ten times the learning rates change nothing: they are not read"


def _masked_rows_are_inert(subject: _Subject) -> None:
    plain, algorithm, state = subject.started()
    batch, key = subject.problem.batch(plain), jax.random.key(1)
    shape = (plain.batches_per_update, plain.batch_size)
    mask = jnp.asarray(np.random.default_rng(5).uniform(size=shape) < 0.6)

    def spoiled(rows: Transition) -> Transition:
        def column(x: Any) -> Any:
            if x is None or x.dtype == bool:
                return x
            return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - 2)), x, jnp.nan)

        ends = None if rows.terminated is None else rows.terminated ^ ~mask
        return jax.tree.map(column, rows)._replace(mask=mask, terminated=ends)

    clean, _ = _updated(algorithm, state, _masked(batch, mask), key)
    spoilt, metrics = _updated(algorithm, state, _with_rows(batch, spoiled), key)
    reached = "NaN in masked rows reach the state: use the rows that `learn` is given"
    chex.assert_trees_all_equal(clean, spoilt, custom_message=reached)
    for name, metric in metrics.items():
        assert np.isfinite(metric), f"masked rows with NaN in them reach metric {name}"
    everything, _ = _updated(algorithm, state, _masked(batch, jnp.ones_like(mask)), key)
    unmasked, _ = _updated(algorithm, state, batch, key)
    assert_close(everything, unmasked, rtol=1e-3, atol=1e-5)
    assert not _equal(clean, everything), "the mask changes nothing: it is not read"
    _require_that_masked_rows_weigh_nothing(subject)


def _require_that_masked_rows_weigh_nothing(subject: _Subject) -> None:
    """Rows twice over give the means of rows once, the others masked, where nothing is drawn."""
    plain, algorithm, state = subject.started()
    algorithm = _with_rates(algorithm, 10.0)
    shape, half = (plain.batches_per_update, plain.batch_size), plain.batch_size // 2
    for i in range(3):  # a fresh network answers masked rows, which are zeros, with zeros
        batch = subject.problem.batch(plain, seed=i)
        state, _ = _updated(algorithm, state, batch, jax.random.key(i))
    place = np.arange(plain.batch_size)
    again = np.where(place < half, place, place - half)
    twice = jax.tree.map(lambda x: x[:, again] if x.shape[:2] == shape else x, batch)
    once, both = (
        _masked(twice, jnp.broadcast_to(place < rows, shape)) for rows in (half, 2 * half)
    )
    means, _ = _updated(algorithm, state, both, jax.random.key(1))
    drawn, _ = _updated(algorithm, state, both, jax.random.key(2))
    if _equal(means, drawn):
        same, _ = _updated(algorithm, state, once, jax.random.key(1))
        message = "masked rows weigh in a mean: take masked_mean(loss, rows.mask)"
        assert_close(same, means, rtol=1e-3, atol=1e-5, message=message)


def _masked_rows_are_in_no_loss(subject: _Subject) -> None:
    """Where observations have another zero, nothing but the blanks in masked rows looks different.

    A loss that means over all rows, blanks included, keeps the law above.
    """
    plain, algorithm, state = subject.started()
    maps = state.preparation
    if maps.window:
        return  # windows say of themselves what is blank
    shape = (plain.batches_per_update, plain.batch_size)
    mask = jnp.asarray(np.random.default_rng(5).uniform(size=shape) < 0.6)
    batch, found = subject.problem.batch(plain), []
    for steps in (0.0, 1.0):  # blanks at the mean of the log, and a deviation off
        offset = steps * _coarse(maps.obs.scale)
        change = offset - _coarse(maps.obs.offset)
        moved = eqx.tree_at(lambda s: s.preparation.obs.offset, state, offset)
        rows = _with_rows(batch, partial(_moved_by, change=change, mask=mask))
        new, _ = _updated(algorithm, moved, rows, jax.random.key(1))
        found.append(eqx.tree_at(lambda s: s.preparation.obs.offset, new, jnp.zeros_like(offset)))
    others = dict(jax.tree.leaves_with_path(found[1]))
    for path, leaf in jax.tree.leaves_with_path(found[0]):
        where = jax.tree_util.keystr(path)
        assert jnp.array_equal(leaf, others[path]), f"what moves {where} reads masked rows"


def _moved_by(rows: Transition, change: Any, mask: Any) -> Transition:
    def moved(obs: Any) -> Any:
        return None if obs is None else _coarse(obs) + jnp.broadcast_to(change, obs.shape)

    return rows._replace(obs=moved(rows.obs), next_obs=moved(rows.next_obs), mask=mask)


def _coarse(x: Any) -> Any:
    # So that sums of such numbers are exact in float32.
    return jnp.round(jnp.asarray(x) * 64) / 64


def _nothing_is_learned_where_every_row_is_masked(subject: _Subject) -> None:
    plain, algorithm, state = subject.started()
    shape = (plain.batches_per_update, plain.batch_size)
    nothing = _masked(subject.problem.batch(plain), jnp.zeros(shape, bool))
    new, metrics = _updated(algorithm, state, nothing, jax.random.key(1))
    chex.assert_tree_all_finite((new, metrics))


def _hard_data_stay_finite(subject: _Subject) -> None:
    """Actions at a bound, a channel that never moves, no reward; then rewards of millions."""
    plain, algorithm, _ = subject.started()
    problem = subject.problem
    high = jnp.asarray(highs(problem.spec.action), jnp.float32)

    def hard(rows: Transition) -> Transition:
        return rows._replace(
            action=jnp.broadcast_to(high, rows.action.shape),
            reward=None if rows.reward is None else jnp.zeros_like(rows.reward),
        )

    def of_millions(rows: Transition) -> Transition:
        # More than the statistics know of: no scale of the reward takes it away.
        return rows._replace(reward=None if rows.reward is None else 3e6 * (rows.reward - 1))

    state = subject.fresh(plain, problem)
    for change, updates in ((hard, 100), (of_millions, 20)):
        batch = _with_rows(problem.batch(plain), change)
        for i in range(updates):
            state, metrics = _updated(algorithm, state, batch, jax.random.key(i))
        chex.assert_tree_all_finite((state, metrics))
    actions = policy_actions(plain.policy(state), problem.log.obs[:8].at[:, 3].add(1.0))
    low = jnp.asarray(lows(problem.spec.action), jnp.float32)
    inside = np.all((low[None] <= actions) & (actions <= high[None]))
    assert inside, f"actions from {actions.min(0)} to {actions.max(0)} leave the box"


def _the_state_is_a_function_of_the_key(subject: _Subject) -> None:
    plain, _, state = subject.started()
    problem = subject.problem
    chex.assert_trees_all_equal(state, subject.fresh(plain, problem))
    other = subject.fresh(plain, problem, seed=1)
    assert not _equal(state, other), "another key gives the same state"


def _the_same_plant_in_other_units_gives_the_same_policy(subject: _Subject) -> None:
    plain, algorithm, _ = subject.started()
    obs, units = subject.problem.log.obs[:32], []
    for problem in (subject.problem, in_other_units(subject.problem)):
        state = subject.fresh(plain, problem)
        for i in range(3):
            batch = problem.batch(plain, seed=i)
            state, _ = _updated(algorithm, state, batch, jax.random.key(i))
        actions = np.asarray(policy_actions(plain.policy(state), problem.log.obs[: len(obs)]))
        low, high = (np.array(end(problem.spec.action)) for end in (lows, highs))
        units.append(2 * (actions - low) / (high - low) - 1)
    told = "other units change the policy: work on the rows that `learn` is given"
    np.testing.assert_allclose(units[1], units[0], atol=1e-4, err_msg=told)


def _a_one_step_task_is_learned(subject: _Subject) -> None:
    """In the mean over observations the policy earns more than the log's uniform actions."""
    plain, algorithm, _ = subject.started()
    problem = one_step_task()
    state = subject.fresh(plain, problem)
    fast, batches = _with_rates(algorithm, 10.0), [problem.batch(plain, seed=i) for i in range(8)]
    for i in range(300):
        state, _ = _updated(fast, state, batches[i % 8], jax.random.key(i))
    actions = np.asarray(policy_actions(plain.policy(state), problem.log.obs))
    low, high = (np.array(end(problem.spec.action)) for end in (lows, highs))
    earned = task_reward(2 * (actions - low) / (high - low) - 1).mean()
    logged = float(np.mean(problem.log.reward))
    assert earned > logged, f"the policy earns {earned:.3g}, the log's random actions {logged:.3g}"


def _with_rates(algorithm: Any, factor: float) -> Any:
    named = algorithm.rates.values() if isinstance(algorithm, BaseLearner) else ()
    names = set(named) or {f.name for f in fields(algorithm) if f.name.endswith("learning_rate")}
    return replace(algorithm, **{name: factor * getattr(algorithm, name) for name in names})


def _with_rows(batch: Any, change: Callable[[Transition], Transition]) -> Any:
    if isinstance(batch, Transition):
        return change(batch)
    return batch._replace(rows=change(batch.rows))


def _masked(batch: Any, mask: Any) -> Any:
    return _with_rows(batch, lambda rows: rows._replace(mask=mask))


def _equal(left: Any, right: Any) -> bool:
    same = jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b, equal_nan=True)), left, right)
    return all(jax.tree.leaves(same))
