"""Which channels of a dataset make a control loop."""

import re
from typing import NamedTuple

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._loops import todays_controller

ENDING = re.compile(
    r"^(?P<loop>.*\d.*?)[\s._-](?P<ending>sp|pv|cv|me|op|out|mv|co)$", re.IGNORECASE
)


class LoopTags(NamedTuple):
    """The channels of a control loop.

    Attributes:
        name: Tag of the controller, such as ``"TIC-201"``.
        measurement: Channel that it controls.
        output: Channel that it moves.
        setpoint: Channel of its setpoint; empty if there is none.
        mode: Column of its mode in a table; empty if there is none.
    """

    name: str
    measurement: str
    output: str
    setpoint: str = ""
    mode: str = ""


def loops_of(dataset: Dataset) -> tuple[LoopTags, ...]:
    """The loops that a dataset's ``plant.toml`` declares, or that the names of its channels show.

    Args:
        dataset: Any dataset.

    Returns:
        Loops; a channel such as ``TIC_201_PV`` is a measurement, ``_SP`` a setpoint and ``_OP`` an
        output. Modes are a column of the dataset.
    """
    declared = todays_controller(dataset).loops
    if declared:
        configuration = dataset.attributes["provenance"]["configuration"]
        names = [loop.get("name", "") for loop in configuration["loop"]]
        return tuple(
            LoopTags(
                name or loop["manipulated"],
                loop["controlled"],
                loop["manipulated"],
                loop.get("setpoint_channel", ""),
            )
            for name, loop in zip(names, declared, strict=True)
        )
    parts: dict[str, dict[str, str]] = {}
    observed = [channel.name for channel in dataset.spec.obs]
    for name in (*observed, *(channel.name for channel in dataset.spec.action)):
        if part := ENDING.match(name):
            setpoint = part["ending"].lower() == "sp"
            role = "setpoint" if setpoint else "measurement" if name in observed else "output"
            parts.setdefault(part["loop"], {}).setdefault(role, name)
    return tuple(
        LoopTags(name, roles["measurement"], roles["output"], roles.get("setpoint", ""))
        for name, roles in parts.items()
        if {"measurement", "output"} <= {*roles}
    )
