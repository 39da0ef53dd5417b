"""Checks all laws on one environment."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from neorl_envs.testing import _laws as laws
from neorl_envs.testing import _simulated_laws as simulated
from neorl_envs.testing._evidence import Evidence, NotCheckable, evidence

LAWS: Mapping[str, Callable[[Evidence], str | NotCheckable]] = {
    law.__name__: law
    for law in (
        laws.a_wrong_shape_is_refused,
        laws.an_unknown_preset_is_refused,
        laws.its_own_parameters_are_physical,
        laws.a_key_is_used_once,
        laws.a_second_call_does_not_trace_again,
        laws.a_batch_equals_single_steps,
        laws.compiled_equals_eager,
        laws.reward_and_endings_are_scalars,
        laws.finite_under_hostile_actions,
        laws.observations_respect_the_spec,
        laws.applied_is_inside_range_and_rate,
        laws.the_plant_receives_what_is_logged,
        laws.the_last_observation_is_that_of_the_step,
        laws.endings_exclude_each_other,
        laws.an_end_has_its_reason,
        laws.the_clock_truncates,
        laws.terms_add_up_to_the_reward,
        laws.ending_early_does_not_pay,
        laws.costs_are_declared_and_not_negative,
        laws.a_nan_action_keeps_the_last_command,
        laws.equal_keys_give_equal_episodes,
        simulated.another_key_gives_other_draws,
        simulated.draws_do_not_go_together,
        simulated.clean_has_no_chance,
        simulated.instruments_only_show,
        simulated.rewards_and_costs_follow_the_declarations,
        simulated.a_trip_has_its_price,
        simulated.a_period_takes_dt,
    )
}
"""Every law by name. It returns the fault that it finds in the evidence, an empty text if there is
none, or the reason why the law cannot be checked on this environment."""

EAGER = "compiled_equals_eager"


class Finding(NamedTuple):
    """Result of checking one law.

    Attributes:
        law: Name of the law.
        fault: Description of the violation; empty if the law is satisfied.
        unchecked: Why the law was not checked, and how to make it checkable; empty if it was
            checked.
    """

    law: str
    fault: str
    unchecked: str = ""


def check_environment(
    env: Any,
    *,
    seed: int = 0,
    eager: bool = True,
    report: Callable[[Finding], object] = lambda finding: None,
) -> tuple[Finding, ...]:
    """Checks every law on an environment.

    Eight instances with different parameters run to the horizon in one compiled program, under
    harmless and hostile actions (ends of the ranges, jumps from end to end, NaN, infinite, far
    outside), and all results are checked against the laws.

    Args:
        env: A plant, as documented in :class:`neorl_envs.plants.Plant`.
        seed: Seed of parameters, noise and actions.
        eager: Whether to compare with calls without ``jit`` too, which is the slowest check.
        report: Called with every finding as soon as its law is checked, since a whole check can
            take minutes.

    Returns:
        One finding per law, including laws that cannot be checked on this plant. If the object is
        not a plant or cannot be run, a single finding that gives the reason.

    Example:
        >>> import neorl_envs
        >>> found = check_environment(neorl_envs.make("ChemicalReactor-v0"))  # doctest: +SKIP
        >>> [finding.law for finding in found if finding.fault]  # doctest: +SKIP
        []
    """
    findings = []
    for finding in _findings(env, seed, eager=eager):
        report(finding)
        findings.append(finding)
    return tuple(findings)


def _findings(env: Any, seed: int, *, eager: bool) -> Iterator[Finding]:
    fault = laws.it_is_a_plant(env)
    finding = Finding(laws.it_is_a_plant.__name__, fault)
    if fault:
        yield finding
        return
    try:
        measured = evidence(env, seed)
    except Exception as error:  # any exception of a third-party plant becomes a finding
        yield _why_it_cannot_be_run(env, error)
        return
    yield finding
    for name, law in LAWS.items():
        if eager or name != EAGER:
            yield _finding(name, law, measured)


def _finding(
    name: str, law: Callable[[Evidence], str | NotCheckable], measured: Evidence
) -> Finding:
    try:
        answer = law(measured)
    except Exception as error:  # numbers that another finding names, such as NaN
        answer = f"cannot be judged: {type(error).__name__}: {error}"
    return (
        Finding(name, "", answer.reason)
        if isinstance(answer, NotCheckable)
        else Finding(name, answer)
    )


def _why_it_cannot_be_run(env: Any, error: Exception) -> Finding:
    """The finding on the form of the state if that is the reason, since JAX's message is long."""
    with contextlib.suppress(Exception):
        fault = laws.the_state_keeps_its_form(env)
        if fault:
            return Finding(laws.the_state_keeps_its_form.__name__, fault)
    return Finding("it_can_be_run", f"{type(error).__name__}: {error}")
