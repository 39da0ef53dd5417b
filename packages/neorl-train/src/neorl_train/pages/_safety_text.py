"""Sentences on what is guaranteed, under which conditions, and on what is unknown."""

from neorl_train.judging._safety_findings import LOGGED, WITH, WITHOUT, Assessment
from neorl_train.judging._wording import confidence, listed, percent

PASSED, FAILED = "no hard constraint was broken", "a hard constraint was broken"
PASSED_ON_A_LOG = "no hard constraint of the action was broken; a log does not show costs"
UNSEEN = (
    " This applies only to its actions: a log does not show which costs, states and trips they "
    "would have led to."
)

GUARANTEE = (
    "Every action that leaves the filter is a finite number in the range of its actuator, whatever "
    "the policy, the sensors or the fallback return.",
    "It lies within the declared limits and differs from the action that the plant received last "
    "by no more than the declared rate in one control period; from outside the limits it returns "
    "at that rate.",
    "A tripped interlock and every linear or barrier row hold, or the step reports that they could "
    "not be kept (interval_empty, rows_infeasible) and the fallback acts.",
    "A request that keeps all limits passes unchanged; every change has a reason in the report.",
)
CONDITIONS = (
    "the compiled program treats NaN correctly, which a bundle tests when it is loaded;",
    "in every step it receives the action that the plant received, or the information that it is "
    "unknown;",
    "no other program or person writes to the actuator between two steps;",
    "it is called once per control period, never earlier;",
    "the limits are the single-precision numbers nearest to those declared.",
)
NOT_CLAIMED = (
    "The state of the plant is not guaranteed: violations of temperatures, pressures and levels "
    "are counted here, but not excluded. Barrier rows bound the prediction of a model, not the "
    "plant.",
    "Measurements that are finite and plausible but wrong are not detected unless a monitor covers "
    "them.",
    "This is supervisory control and not a protection layer; the protection of people and plant "
    "remains in an independent system with its own sensors, logic and final elements.",
)


def answer(assessment: Assessment) -> str:
    """The result in a few words; for a log it covers only actions."""
    if assessment.broken:
        return FAILED
    return PASSED if assessment.simulated else PASSED_ON_A_LOG


def headline(assessment: Assessment) -> str:
    """The result in one sentence, and for a log a second one on what remains open."""
    episodes = next(iter(assessment.metrics.values())).episodes
    where = f"in {episodes} episodes of {assessment.where}"
    unseen = "" if assessment.simulated else UNSEEN
    if assessment.broken:
        texts = [
            f"{constraint.name} in {constraint.violations[WITH].episodes} episodes"
            for constraint in assessment.broken
        ]
        return (
            f"{assessment.policy} broke hard constraints with the filter on: {listed(texts)}, "
            f"{where}.{unseen}"
        )
    counted = [constraint for constraint in hard_of(assessment) if WITH in constraint.violations]
    worst = max(
        (constraint.violations[WITH].episode_fraction.high for constraint in counted), default=0.0
    )
    violated_without = sum(
        constraint.violations[WITHOUT].steps > 0
        for constraint in counted
        if WITHOUT in constraint.violations
    )
    qualification = "" if assessment.simulated else " of the action in the situations of the log"
    return (
        f"With the filter on, {assessment.policy} broke no hard constraint{qualification} {where}; "
        f"without it, {violated_without or 'none'} of the {len(counted)} active hard constraints "
        "were broken. An event that was counted zero times may still happen in up to "
        f"{percent(worst)} of such episodes ({confidence(assessment.level)}, exact).{unseen}"
    )


def hard_of(assessment: Assessment) -> list:
    """The hard constraints that were active in any step."""
    return [constraint for constraint in assessment.constraints if constraint.tier == "hard"]


def scope(assessment: Assessment) -> list[str]:
    """Sentences on what the numbers refer to, and what they cannot show."""
    if assessment.simulated:
        return [
            f"The policy ran on the simulator {assessment.where}, with and without its filter from "
            "the same starts, with the same disturbances and noise. The result applies to the "
            "plant only as far as the simulator resembles it.",
            "Hard constraints are those of the action, and costs with a limit for every step. Soft "
            "constraints are costs with a limit for the sum of an episode. Preferences reduce the "
            "wear of an actuator.",
        ]
    return [
        f"There is only the log {assessment.where}. The policy proposed actions in the logged "
        "situations, and the plant followed the logged actions, so the effects of the proposals "
        "were not observed.",
        "This report shows whether the requests of the policy keep the constraints of the action "
        "in the logged situations; that the actions that the filter passes keep them there, "
        "whatever the plant is; how often the filter intervenes on this log; and which monitors "
        "alarm on it.",
        "It cannot show the costs, states, trips or return that the policy would have caused. "
        f"Those columns describe only the log ({LOGGED}). In shadow every step starts from the "
        "logged action, so the rate limit acts wherever policy and log differ; in closed loop it "
        "acts less often.",
    ]
