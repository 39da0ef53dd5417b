"""Sentences on what is guaranteed, under which conditions, and on what is unknown."""

from neorl_train.results._wording import confidence, listed, percent
from neorl_train.safety._findings import LOGGED, WITH, WITHOUT, Assessment

PASSED, FAILED = "no hard constraint was broken", "a hard constraint was broken"
PASSED_ON_A_LOG = "no hard constraint of the action was broken; of costs nothing can be said"
UNSEEN = (
    " This speaks of its actions only: which costs, states and trips they would have led to cannot "
    "be said from a log."
)

GUARANTEE = (
    "Every action that leaves the filter is a finite number in the range of its actuator, "
    "whatever the policy, the sensors or the fallback say.",
    "It lies in the declared box, and differs from what the plant received last by no more than "
    "the declared rate in one control period; from outside the box it returns at that rate.",
    "A tripped interlock and every linear or barrier row hold, or the step says that they could "
    "not (interval_empty, rows_infeasible) and the fallback acts.",
    "A request that keeps all of it passes unchanged; every change has a reason in the report.",
)
CONDITIONS = (
    "the compiled program honours NaN, which a bundle tests when it is loaded;",
    "in every step it is told what the plant received, or that nobody knows;",
    "nobody else writes the actuator between two steps;",
    "it is called once in a control period, never earlier;",
    "the limits are the single-precision numbers nearest to those declared.",
)
NOT_CLAIMED = (
    "Nothing is guaranteed of the state of the plant: temperatures, pressures and levels are "
    "counted here, never promised. Barrier rows bound what a model predicts, not the plant.",
    "Nothing is said of measurements that are finite, plausible and wrong, where no monitor looks.",
    "This is supervisory control and no protection layer; what protects people and plant stays in "
    "an independent system with its own sensors, logic and final elements.",
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
        breaches = [
            f"{one.name} in {one.violations[WITH].episodes} episodes" for one in assessment.broken
        ]
        return (
            f"{assessment.policy} broke hard constraints with the filter on: {listed(breaches)}, "
            f"{where}.{unseen}"
        )
    counted = [one for one in hard_of(assessment) if WITH in one.violations]
    worst = max((one.violations[WITH].episode_fraction.high for one in counted), default=0.0)
    plain = sum(one.violations[WITHOUT].steps > 0 for one in counted if WITHOUT in one.violations)
    least = "" if assessment.simulated else " of the action at the situations that were logged"
    return (
        f"With the filter on, {assessment.policy} broke no hard constraint{least} {where}; without "
        f"it, {plain or 'none'} of {len(counted)} that were ever near. What was counted zero "
        f"times may still happen in up to {percent(worst)} of such episodes "
        f"({confidence(assessment.level)}, exact).{unseen}"
    )


def hard_of(assessment: Assessment) -> list:
    """The hard constraints that were active in any step."""
    return [one for one in assessment.constraints if one.tier == "hard"]


def scope(assessment: Assessment) -> list[str]:
    """Sentences on what the numbers refer to, and what they cannot show."""
    if assessment.simulated:
        return [
            f"The policy ran on the simulator {assessment.where}, with and without its filter from "
            "the same starts, with the same disturbances and noise. The result holds on the plant "
            "only as far as the simulator resembles it.",
            "Hard constraints: those of the action, and costs with a limit for every step. Soft: "
            "costs with a limit for the sum of an episode. Preferences: what spares an actuator.",
        ]
    return [
        f"There is only the log {assessment.where}. The policy answered the situations that were "
        "logged, and the plant went on as it did: what its actions would have led to was not "
        "observed.",
        "Can be said: whether what it asks for keeps the constraints of the action in the "
        "situations that were logged, and that what its filter lets pass keeps them there, "
        "whatever the plant is; how often the filter steps in beside this log; which "
        "monitors alarm on it.",
        "Cannot be said: costs, states, trips or the return that the policy would have brought "
        f"about. Those columns are of the log alone ({LOGGED}). In shadow every step starts from "
        "the logged action, so the rate limit acts wherever policy and log differ; in the loop it "
        "acts less often.",
    ]
