"""Interrupted anywhere, training continues to the same bits, with the same records."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from neorl_agents import BC
from neorl_core import InputError
from neorl_core.control import ConstantPolicy
from neorl_train import train
from neorl_train.runs import Checkpoints, tree_digest
from neorl_train.training import Plan

PLAN = Plan(updates=60, chunk=10, interval=20)


@pytest.fixture
def checkpoints_in():
    def make(folder, print_line=print):
        return Checkpoints(
            folder, identity={"run": "a"}, interval=20, keep=2, print_line=print_line
        )

    return make


def _stop_after(calls):
    left = iter(range(calls))
    return lambda: next(left, None) is None


def _validate(policy):
    return {"first": jnp.asarray(policy.action)[0]}


@pytest.mark.parametrize(
    ("calls", "form"), [*((calls, "queued") for calls in (1, 2, 3, 5, 6)), (3, "vmap")]
)
def test_stopped_at_a_block_it_continues_to_the_same_bits(
    make_line, make_notes, line_data, checkpoints_in, tmp_path, calls, form
):
    straight, first, second = make_notes(), make_notes(), make_notes()
    through = train(
        make_line(), line_data, (0, 1), PLAN, watcher=straight, validate=_validate, form=form
    )
    stopped = train(
        make_line(),
        line_data,
        (0, 1),
        PLAN,
        watcher=first,
        checkpoints=checkpoints_in(tmp_path),
        validate=_validate,
        stop=_stop_after(calls),
        form=form,
    )
    assert stopped.finished == (stopped.step == PLAN.updates)
    assert stopped.step == 10 * calls
    resumed = train(
        make_line(),
        line_data,
        (0, 1),
        PLAN,
        watcher=second,
        checkpoints=checkpoints_in(tmp_path),
        validate=_validate,
        form=form,
    )
    assert resumed.finished
    assert second.began == [stopped.step]
    assert tree_digest(resumed.snapshot) == tree_digest(through.snapshot)
    assert tree_digest(resumed.policies) == tree_digest(through.policies)
    assert first.chunks + second.chunks == straight.chunks
    kept = [one for one in first.validations if one[0] < stopped.step]
    assert kept + second.validations == straight.validations


def test_a_finished_run_is_loaded_not_trained(
    make_line, make_notes, line_data, checkpoints_in, tmp_path
):
    first, again = make_notes(), make_notes()
    make = checkpoints_in
    through = train(make_line(), line_data, (0,), PLAN, watcher=first, checkpoints=make(tmp_path))
    loaded = train(make_line(), line_data, (0,), PLAN, watcher=again, checkpoints=make(tmp_path))
    assert again.compiled == 0
    assert again.chunks == []
    assert tree_digest(loaded.policies) == tree_digest(through.policies)


def test_checkpoints_come_at_the_interval(
    make_line, make_notes, line_data, checkpoints_in, tmp_path
):
    notes = make_notes()
    checkpoints = checkpoints_in(tmp_path)
    train(make_line(), line_data, (0,), PLAN, watcher=notes, checkpoints=checkpoints)
    assert notes.saved == [20, 40, 60]
    assert checkpoints.steps() == [40, 60]


def test_validation_sees_policies_at_the_interval_and_the_end(make_line, make_notes, line_data):
    notes = make_notes()
    plan = Plan(updates=50, chunk=10, interval=20)
    result = train(make_line(), line_data, (3,), plan, watcher=notes, validate=_validate)
    assert [step for step, _ in notes.validations] == [20, 40, 50]
    assert notes.validations[-1][1][0]["first"] == _validate(result.policies[0])["first"]


def _distances(*of_seeds):
    """A validation whose distances are given, interval by interval, for every seed."""
    left = iter(value for values in zip(*of_seeds, strict=True) for value in values)
    return lambda policy: {"held_out_distance": jnp.float32(next(left))}


def test_the_policies_are_those_of_the_smallest_mean_distance_interrupted_or_not(
    make_line, line_data, tmp_path
):
    """Row E06: the best by validation without the plant is kept, and is what is judged."""
    plan = Plan(updates=100, chunk=10, interval=20, best=True)

    def run(folder, *distances, stop=lambda: False, updates=100):
        checkpoints = Checkpoints(
            tmp_path / folder, identity={}, interval=20, keep=2, print_line=print, best=True
        )
        result = train(
            make_line(),
            line_data,
            (0, 1),
            replace(plan, updates=updates),
            checkpoints=checkpoints,
            validate=_distances(*distances),
            stop=stop,
        )
        return result, checkpoints.steps()

    whole, kept = run("a", (9, 1, 5, 6, 7), (9, 5, 2, 6, 7))
    assert (whole.best, whole.step, kept) == (40, 100, [40, 80, 100])
    upto, _ = run("b", (9, 1), (9, 5), updates=40)
    assert tree_digest(whole.policies) == tree_digest(upto.policies)
    stopped, _ = run("c", (9, 1, 5), (9, 5, 2), stop=_stop_after(6))
    assert (stopped.best, stopped.finished) == (None, False)
    resumed, kept = run("c", (5, 6, 7), (2, 6, 7))
    assert (resumed.best, kept) == (40, [40, 80, 100])
    assert tree_digest(resumed.policies) == tree_digest(whole.policies)
    assert tree_digest(resumed.snapshot) == tree_digest(whole.snapshot)
    last, _ = run("d", (9, 5, 4, 3, 2), (9, 5, 4, 3, 2))
    assert (last.best, last.step) == (None, 100)
    assert upto.best is None


def test_divergence_is_said_and_nothing_bad_is_saved(
    make_line, make_notes, line_data, checkpoints_in, tmp_path
):
    checkpoints = checkpoints_in(tmp_path)
    message = (
        r"seed 4 is (nan|inf) \(and so parameters.weight\) at update \d+; no checkpoint was saved"
    )
    with pytest.raises(InputError, match=message):
        train(
            make_line(learning_rate=1e6),
            line_data,
            (4,),
            PLAN,
            watcher=make_notes(),
            checkpoints=checkpoints,
        )
    assert checkpoints.steps() == []


@pytest.mark.parametrize("late", [40, 60])
def test_a_tensor_that_is_not_finite_is_named_with_the_last_good_checkpoint(
    make_line, line_data, checkpoints_in, tmp_path, late
):
    """Also by the last update of all, whose loss was still finite."""

    class Late(type(make_line())):
        def update(self, state, batch, key):
            new, metrics = super().update(state, batch, key)
            late_now = new.updates == late // self.cycle
            weight = jnp.where(late_now, jnp.nan, new.parameters["weight"])
            return new.with_parameters(weight=weight), metrics

    checkpoints, before = checkpoints_in(tmp_path), late - 20
    message = rf"weight of seed 1 is not finite at update {late}; the last good .* {before}; lower"
    with pytest.raises(InputError, match=message):
        train(Late(), line_data, (1,), PLAN, checkpoints=checkpoints)
    assert checkpoints.steps()[-1] == before


def test_the_line_of_the_first_nan_is_named_on_request(make_line, line_data):
    """Row E03: the chunk is repeated operation by operation."""

    class Root(type(make_line())):
        def update(self, state, batch, key):
            new, metrics = super().update(state, batch, key)
            late = jnp.where(new.updates >= 35 // self.cycle, -1.0, 1.0)
            weight = new.parameters["weight"] * jnp.sqrt(late)
            return new.with_parameters(weight=weight), metrics

    plan = replace(PLAN, debug_nans=True)
    with pytest.raises(InputError, match=r"first NaN comes from training/test_training.py, line"):
        train(Root(), line_data, (1,), plan)
    with pytest.raises(InputError, match=r"weight = new.parameters\["):
        train(Root(), line_data, (1,), plan)
    with pytest.raises(InputError, match=r"\(--devices.debug-nans names the line .*\)$"):
        train(Root(), line_data, (1,), PLAN)


def test_a_learner_that_breaks_the_contract_is_named_before_it_trains(make_line, line_data):
    """In place of the traceback of a scan."""
    line = type(make_line())

    class Forgetful(line):
        def update(self, state, batch, key):
            return super().update(state, batch, key)[0]

    class Mute(line):
        def policy(self, state):
            return jnp.tanh

    class Wide(line):
        def policy(self, state):
            return ConstantPolicy(jnp.tile(state.parameters["weight"][0], 2))

    plan = Plan(4, 2, 4)
    with pytest.raises(InputError, match=r"Forgetful\.update must return a state and a dictionary"):
        train(Forgetful(), line_data, (0,), plan)
    with pytest.raises(InputError, match=r"Mute\.policy must return a neorl_core\.Policy"):
        train(Mute(), line_data, (0,), plan)
    with pytest.raises(InputError, match=r"Wide\.policy .* shape \(1,\), .* of valve, got \(2,\)"):
        train(Wide(), line_data, (0,), plan)


@pytest.mark.parametrize("learner", ["bc", BC, None])
def test_what_is_no_learner_is_refused(line_data, learner):
    with pytest.raises(InputError, match=r"expected a learner, such as neorl_agents\.IQL"):
        train(learner, line_data, (0,), Plan(4, 2, 4))


@pytest.mark.parametrize("seeds", [3, ()])
def test_seeds_that_are_none_are_refused(make_line, line_data, seeds):
    with pytest.raises(InputError, match=r"seeds must be one or more .* such as \(0, 1\), got"):
        train(make_line(), line_data, seeds, Plan(4, 2, 4))
