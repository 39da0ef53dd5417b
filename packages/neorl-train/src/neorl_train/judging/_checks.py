"""Checks that refuse an evaluation before anything is run."""

from collections.abc import Sequence

from neorl_core import Channel, CostChannel, InputError, Spec


def check_names(names: Sequence[str], *, candidate: str, reserved: Sequence[str]) -> None:
    """Refuses an unknown candidate and a policy that has the name of another."""
    if candidate not in names:
        raise ValueError(
            f"the candidate {candidate!r} is not among the policies: {', '.join(names) or 'none'}"
        )
    clash = sorted(set(names) & set(reserved))
    if clash:
        raise ValueError(
            f"{', '.join(clash)} is already the name of a controller; rename the policy"
        )


def check_spec(spec: Spec, dataset_spec: Spec, environment: str) -> None:
    """Refuses a log of another plant than the simulated one; cost limits may differ."""
    for field in ("obs", "action", "cost", "dt"):
        ours, theirs = getattr(spec, field), getattr(dataset_spec, field)
        if field == "cost":
            ours, theirs = _without_limits(ours), _without_limits(theirs)
        if ours != theirs:
            raise ValueError(
                f"the log was recorded on another plant than {environment}: its {field} is "
                f"{theirs}, the simulator's {ours}; evaluate without environment"
            )


ADVICE = "name the simulator of the plant that the log was recorded on"


def require_same_channels(
    simulator: Spec, log: Spec, environment: str, advice: str = ADVICE
) -> None:
    """Refuses a simulated plant whose channels differ from those of a log and its policies.

    Cost limits may differ, because they belong to the run.
    """
    for field, kind in (("obs", "observed"), ("action", "action"), ("cost", "cost")):
        ours, theirs = getattr(simulator, field), getattr(log, field)
        if field == "cost":
            ours, theirs = _without_limits(ours), _without_limits(theirs)
        if len(ours) != len(theirs):
            raise InputError(
                f"{environment} has {len(ours)} {kind} channels, and the log and its policies have "
                f"{len(theirs)}; {advice}"
            )
        for channel, logged in zip(ours, theirs, strict=True):
            if channel != logged:
                raise InputError(
                    f"{environment} has the {kind} channel {_describe(channel)}, where the log "
                    f"and its policies have {_describe(logged)}; {_advice(logged, advice)}"
                )
    if simulator.dt != log.dt:
        raise InputError(
            f"{environment} has a control period of {simulator.dt:g} s, the log one of {log.dt:g} "
            f"s; {advice}"
        )


def _without_limits(costs: Sequence[CostChannel]) -> list[tuple[str, str, str]]:
    """Name, unit and kind of every cost; its limit belongs to the run."""
    return [(channel.name, channel.unit, channel.per) for channel in costs]


def _describe(channel: Channel | tuple[str, str, str]) -> str:
    """Describes a channel with its range, or a cost with what it counts."""
    if isinstance(channel, Channel):
        return f"{channel.name} ({channel.low:g} to {channel.high:g} {channel.unit})"
    name, unit, per = channel
    return f"{name} ({unit} per {per})"


def _advice(logged: Channel | tuple[str, str, str], advice: str) -> str:
    if isinstance(logged, Channel) and logged.unit == "?":
        return (
            "the log's file does not state its channels; write its rows with the channels of the "
            "plant first"
        )
    return advice
