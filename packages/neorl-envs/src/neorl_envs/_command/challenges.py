"""Options that make a plant harder, shared by all commands that run one."""

import dataclasses
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line
from neorl_envs.wrappers import constrained, delayed, disturbed


@dataclasses.dataclass(frozen=True)
class Challenges:
    """Difficulties that can be added to any plant; all are off by default.

    Attributes:
        delay: Control periods between a command and its effect, in addition to the plant's own.
        reading_delay: Control periods between a measurement and its reading, in addition to the
            plant's own.
        disturbance: Standard deviation of an unmeasured load on every actuator, as a fraction of
            its range.
        limit: Additional limits of measured channels, which become costs: NAME LOW HIGH; inf for
            none.
    """

    delay: int = 0
    reading_delay: int = 0
    disturbance: float = 0.0
    limit: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether any difficulty is on."""
        return self != Challenges()


def challenge_plant(env: Any, chosen: Challenges) -> Any:
    """The plant with the chosen wrappers; an ``InputError`` if a number or a channel is invalid."""
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
