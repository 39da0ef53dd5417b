"""``neorl-envs list``: the environments, including those of other distributions."""

import dataclasses
import json
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import head
from neorl_core.infrastructure.command_line import one_line, parse_options
from neorl_envs.plants._table import GRAPH_PLANTS, PLANTS, environment_names, gymnasium_id, make

VERSION = 1
"""Version of the JSON document."""


@dataclasses.dataclass(frozen=True)
class List:
    """Lists the environments.

    example: neorl-envs list

    Attributes:
        json: Print JSON instead of text.
    """

    json: bool = False


def command(words: list[str]) -> None:
    """``neorl-envs list``."""
    options = parse_options(List, words, program="neorl-envs list")
    listed = [_entry(name) for name in environment_names()]
    if options.json:
        document = {"environments": listed, "networks": list(GRAPH_PLANTS)}
        print(json.dumps({**head("environments", VERSION), **document}, indent=2))
        return
    print("\n".join(map(_line, listed)))
    print(
        f"networks of any size, small by these names: {', '.join(GRAPH_PLANTS)}; "
        "neorl_envs.graph_plants makes larger ones"
    )


def _entry(name: str) -> dict[str, Any]:
    """What is known of one environment; only the reason if it cannot be created."""
    try:
        spec = make(name).spec
    except InputError as error:
        return {"name": name, "error": one_line(error)}
    return {
        "name": name,
        "measured": spec.n_obs,
        "manipulated": spec.n_action,
        "costs": spec.n_cost,
        "period": spec.dt,
        "horizon": spec.horizon,
        "gymnasium": gymnasium_id(name),
        "origin": PLANTS.origin(name),
    }


def _line(entry: dict[str, Any]) -> str:
    """The line of one environment."""
    if "error" in entry:
        return f"{entry['name']}  {entry['error']}"
    costs, origin = entry["costs"], entry["origin"]
    return (
        f"{entry['name']}  {entry['measured']} measured, {entry['manipulated']} manipulated, "
        f"{costs} {'cost' if costs == 1 else 'costs'}, period {entry['period']:g} s, "
        f"at most {entry['horizon']} steps; Gymnasium: {entry['gymnasium']}"
        f"{f'; from {origin}' if origin else ''}"
    )
