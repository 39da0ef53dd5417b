"""Options that make a plant harder, for every command that runs one."""

import dataclasses
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line
from neorl_envs.wrappers import constrained, delayed, disturbed


@dataclasses.dataclass(frozen=True)
class Challenges:
    """Switches that every plant has; all off by default."""

    delay: int = 0
    """Control periods between a command and its effect, beyond the plant's own."""
    reading_delay: int = 0
    """Control periods between the plant and its readings, beyond the plant's own."""
    disturbance: float = 0.0
    """Standard deviation of an unmeasured load on every actuator, as a part of its range."""
    limit: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Further limits of measured channels, which become costs: NAME LOW HIGH; inf for none."""

    @property
    def any(self) -> bool:
        """Whether one is on."""
        return self != Challenges()


def challenged(env: Any, chosen: Challenges) -> Any:
    """The plant behind the chosen wrappers.

    Raises:
        InputError: If a number or a channel is refused.
    """
    try:
        if chosen.delay or chosen.reading_delay:
            env = delayed(env, action=chosen.delay, obs=chosen.reading_delay)
        if chosen.disturbance:
            env = disturbed(env, sd=chosen.disturbance)
        return constrained(env, chosen.limit) if chosen.limit else env
    except InputError:
        raise
    except ValueError as error:
        raise InputError(one_line(error)) from error
