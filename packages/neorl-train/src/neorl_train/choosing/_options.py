"""The options of a choice without the plant, and the plant model that all its parts share."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    LearnedPlants,
    PlantFacts,
    RetuneSettings,
    held_out_modes,
    learned_plants,
)
from neorl_core import InputError, Policy
from neorl_core.infrastructure import require_settings, setting, unknown_name
from neorl_envs import Dataset
from neorl_train.choosing._model_trust import log_modes
from neorl_train.choosing._value_estimates import MEMBERS
from neorl_train.data._behaviours import incumbent_episodes

Part = Literal["model", "values", "risk"]
MODEL, VALUES, RISK = "model", "values", "risk"


@dataclasses.dataclass(frozen=True)
class ChooseOptions:
    """Options for choosing a candidate from a log.

    Attributes:
        show: Parts of the page: ``model``, whether the learned plant model may be used;
            ``values``, the returns of all candidates; ``risk``, their costs beside the limits.
        policies: Additional policy artefacts, beside those of the run and the plant's own
            controllers.
        incumbent: Candidate that runs today; if empty, the controller that a run retuned, or the
            first controller of the plant.
        exogenous: Observations that no controller influences, such as weather, demand or
            setpoints.
        updates: Gradient steps of each network of the plant model.
        episodes: Largest number of episodes for judging, which the model is not fitted to.
        held_out_modes: Largest number of controllers of the log, other than the incumbent, whose
            episodes are left out of a further fit, which then predicts them; each takes as long as
            the model itself; zero for none.
        value_updates: Gradient steps of each fitted Q evaluation, a multiple of 100; 0 for none.
        value_members: Networks of each fitted Q evaluation of means, whose spread widens its
            interval; 1 for a single, wider network.
        discount: Discount per step of fitted Q evaluation and importance sampling.
        horizon: Steps that the safety critic of the risk looks ahead.
        risk_updates: Gradient steps of that critic; 0 for none.
        seed: Seed of splits, weights and random samples.
        output: Page to write; a JSON file of the same name is written beside it.
    """

    show: tuple[Part, ...] = ("model", "values", "risk")
    policies: tuple[str, ...] = ()
    incumbent: str = ""
    exogenous: tuple[str, ...] = ()
    updates: int = setting(HistoryModelSettings.updates, low=1)
    episodes: int = setting(RetuneSettings.evaluation_episodes, low=2)
    held_out_modes: int = setting(3, low=0)
    value_updates: int = setting(6_000, low=0)
    value_members: int = setting(MEMBERS, low=1)
    discount: float = setting(0.99, low=0, below=1)
    horizon: int = setting(20, low=1)
    risk_updates: int = setting(10_000, low=0)
    seed: int = setting(0, low=0)
    output: str = "choice.html"

    def validate(self) -> None:
        """Refuses invalid values.

        Raises:
            InputError: Names the first one.
        """
        if not self.show:
            raise InputError("show must name a part: model, values or risk")
        require_settings(self, "")
        if self.value_updates % 100:
            raise InputError(
                f"value_updates must be a multiple of 100 or 0, got {self.value_updates}"
            )

    def settings(self) -> RetuneSettings:
        """The settings of the plant model and of the rule."""
        model = HistoryModelSettings(updates=self.updates)
        return RetuneSettings(model=model, evaluation_episodes=self.episodes)

    def facts(self, declared: PlantFacts | None, dataset: Dataset) -> PlantFacts:
        """Declared facts about the plant with the exogenous observations of these options.

        Raises:
            InputError: If a name is not an observation.
        """
        names = [channel.name for channel in dataset.spec.obs]
        for name in self.exogenous:
            if name not in names:
                raise unknown_name("observation in exogenous", name, names)
        facts = PlantFacts() if declared is None else declared
        exogenous = tuple(dict.fromkeys((*facts.exogenous, *self.exogenous)))
        return dataclasses.replace(facts, exogenous=exogenous)


def learn_plants(
    dataset: Dataset,
    options: ChooseOptions,
    facts: PlantFacts | None = None,
    controllers: Mapping[str, Policy] | None = None,
    incumbent: str = "",
) -> LearnedPlants:
    """Learns the plant from three quarters of a log, and again without controllers of the log.

    Args:
        dataset: Log with costs and rewards.
        options: How the model is learned.
        facts: Declared facts about the plant; none by default.
        controllers: Controllers by the name under which they generated the log; none by default.
        incumbent: Name of the controller that runs today; unknown by default.

    Raises:
        InputError: If an option is out of range, the log does not suffice, or a name is not an
            observation.
    """
    options.validate()
    settings, facts = options.settings(), options.facts(facts, dataset)
    plants = learned_plants(
        dataset.transitions,
        dataset.spec,
        options.seed,
        facts,
        settings,
        by_incumbent=incumbent_episodes(dataset, incumbent),
    )
    most = options.held_out_modes
    modes = log_modes(dataset, controllers or {}) if most else ()
    held_out = held_out_modes(
        plants, modes, options.seed, facts, settings, incumbent=incumbent, most=most
    )
    return plants._replace(held_out=held_out)
