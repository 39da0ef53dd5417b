"""``neorl-envs list``: the environments, including those of other distributions."""

import dataclasses

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line, parse_options
from neorl_envs.interfaces._gymnasium_names import gymnasium_id
from neorl_envs.plants._table import GRAPH_PLANTS, PLANTS, environment_names, make


@dataclasses.dataclass(frozen=True)
class List:
    """Lists the environments.

    example: neorl-envs list
    """


def command(words: list[str]) -> None:
    """``neorl-envs list``."""
    parse_options(List, words, program="neorl-envs list")
    for name in environment_names():
        print(_line(name))
    print(
        f"networks of any size, small by these names: {', '.join(GRAPH_PLANTS)}; "
        "neorl_envs.graph_plants makes larger ones"
    )


def _line(name: str) -> str:
    """The line of one environment, or the reason if it cannot be created."""
    try:
        spec = make(name).spec
    except InputError as error:
        return f"{name}  {one_line(error)}"
    origin = PLANTS.origin(name)
    return (
        f"{name}  {spec.n_obs} measured, {spec.n_action} manipulated, {spec.n_cost} "
        f"{'cost' if spec.n_cost == 1 else 'costs'}, period {spec.dt:g} s, "
        f"at most {spec.horizon} steps; Gymnasium: {gymnasium_id(name)}"
        f"{f'; from {origin}' if origin else ''}"
    )
