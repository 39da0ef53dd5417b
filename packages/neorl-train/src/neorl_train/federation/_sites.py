"""The sites of a federation as its file names them: each a log or plant with its own settings."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_train.configuration._sections import Config, config_to_dict, update
from neorl_train.federation._rules import Fault, check_faults
from neorl_train.federation._settings import (
    Federation,
    FederationConfig,
    GossipConfig,
    MessagesConfig,
    PrivacyConfig,
    check_federation,
)

SECTIONS = {
    "federation": FederationConfig,
    "gossip": GossipConfig,
    "privacy": PrivacyConfig,
    "messages": MessagesConfig,
}
"""Sections of a federation's file in addition to those of a run, ``sites`` and ``faults``."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclasses.dataclass(frozen=True)
class FederationPlan:
    """A federation plan in which only the data are missing.

    Attributes:
        settings: Rounds, rule and messages.
        sites: Configuration of every site's run, by its name.
        faults: Faults to simulate.
        directory: Folder of the numbered federations.
    """

    settings: Federation
    sites: dict[str, Config]
    faults: tuple[Fault, ...]
    directory: Path

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the federations; the same for all sites."""
        return next(iter(self.sites.values())).training.seeds

    @property
    def algorithm(self) -> str:
        """The learner; the same for all sites."""
        return next(iter(self.sites.values())).training.algorithms[0]

    def to_dict(self) -> dict[str, Any]:
        """Nested plain dictionaries with everything that influences the result."""
        plain = {name: dataclasses.asdict(getattr(self.settings, name)) for name in SECTIONS}
        return {
            **plain,
            "faults": [dataclasses.asdict(fault) for fault in self.faults],
            "sites": {name: config_to_dict(config) for name, config in self.sites.items()},
        }


def federation_plan(
    shared: Config,
    settings: Federation,
    sites: Mapping[str, Mapping[str, Any]],
    faults: tuple[Fault, ...] = (),
) -> FederationPlan:
    """Makes the plan from sections that all sites share and sections of each site.

    Raises:
        InputError: If a site's name is not a plain word, or it has an unknown section or other
            learners, seeds or lengths than the rest; or if the settings do not fit the sites.
    """
    for name in sites:
        if not PLAIN_NAME.fullmatch(name):
            raise InputError(
                f"the site name {name!r} must be letters, digits, dashes and underscores"
            )
    check_federation(settings, list(sites))
    check_faults(faults, list(sites), secure_sum=settings.messages.secure_sum)
    if len(shared.training.algorithms) != 1:
        raise InputError(
            "sites train one learner together, but training.algorithms names "
            f"{', '.join(shared.training.algorithms) or 'none'}; name one learner, such as td3_bc"
        )
    if shared.training.on != "log" or shared.finetune.run:
        raise InputError("sites train on their logs; leave training.on and finetune.run out")
    federation = settings.federation
    length = federation.rounds * federation.local_updates
    training = dataclasses.replace(shared.training, updates=length, chunk=federation.local_updates)
    checkpoints = dataclasses.replace(shared.checkpoints, interval=length)
    shared = dataclasses.replace(shared, training=training, checkpoints=checkpoints)
    configs = {}
    for name, section_of_site in sites.items():
        for section in ("training", "algorithms", "checkpoints", "output", "finetune"):
            if section in section_of_site:
                raise InputError(
                    f"[sites.{name}.{section}] is not allowed, because all sites share this "
                    f"section; move it to [{section}]"
                )
        try:
            configs[name] = update(shared, section_of_site)
        except InputError as error:
            raise InputError(f"sites.{name}: {error}") from None
    return FederationPlan(settings, configs, faults, Path(shared.output.directory))
