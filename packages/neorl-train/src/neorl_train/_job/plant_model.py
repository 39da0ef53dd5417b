"""The log for learning a plant model, and the declarations about its plant."""

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neorl_agents.retuning import PlantFacts
from neorl_core import InputError, Policy, Spec
from neorl_envs import Dataset, read_dataset
from neorl_envs.plants import PLANTS, Plant
from neorl_train.candidates._given import artefact_for
from neorl_train.candidates._table import run_controllers
from neorl_train.choosing import ChooseOptions
from neorl_train.configuration._guard import LimitsConfig, limited_spec
from neorl_train.configuration._sections import CandidateConfig, Config
from neorl_train.data._behaviours import usual_incumbent
from neorl_train.data._experience import training_sample
from neorl_train.data._source import known_plant, simulator, source_named
from neorl_train.runs._directory import FALLBACK, POLICIES, RECORD, RunDirectory


class LogContext(NamedTuple):
    """A log, and what is known about the plant that it was recorded on.

    Attributes:
        dataset: The log.
        facts: Declarations of a built-in plant, or of the ``plant.toml`` of a converted log.
        controllers: Tunings of a built-in plant, and controllers that the run identified or was
            given, by name.
        notes: Sentences on which declarations of its ``plant.toml`` are used and which are not.
        incumbent: Name of the controller that runs today; empty if unknown.
        retuning_config: Configuration of the run, if it retuned a controller in a plant model.
    """

    dataset: Dataset
    facts: PlantFacts
    controllers: dict[str, Policy]
    notes: tuple[str, ...] = ()
    incumbent: str = ""
    retuning_config: Config | None = None

    def for_run_options(self, options: ChooseOptions) -> tuple[Dataset, ChooseOptions]:
        """Episodes and options of the plant model that the run itself learned.

        So a page about a run judges on the episodes on which the run judged.

        If no run learned a model, they are the complete log and unchanged options.
        """
        if self.retuning_config is None:
            return self.dataset, options
        defaults, retuning = ChooseOptions(), self.retuning_config.retuning
        from_run: dict[str, Any] = {
            name: getattr(retuning, name)
            for name in ("updates", "seed")
            if getattr(options, name) == getattr(defaults, name)
        }
        rows = training_sample(self.retuning_config.data, self.dataset)
        return rows, dataclasses.replace(options, **from_run)


def log_context(path: Path) -> LogContext:
    """A log, given as a file or by the run that learned from it.

    Returns:
        The log with the cost limits of the run, the declarations of a built-in plant if it was
        recorded on one, and the controllers of the run; identified ones are refitted to the same
        episodes.
    """
    config: Config | None = None
    digests: dict[str, str] = {}
    if path.is_dir() and (path / RECORD).is_file():
        run = RunDirectory(path.absolute())
        config, digests = _config_of(run), run.record().get("given_policies", {})
        path = source_named(config.data.source).log_file(run.dataset)
    elif not path.exists():
        hint = ""
        if str(path) in PLANTS:
            hint = f"; record one with `neorl-envs collect {path} --out log.h5`"
        raise InputError(f"{path}: there is no such log or run{hint}")
    dataset = read_dataset(path)
    if config is not None:  # the run's own limits, as in its verdict
        dataset = dataclasses.replace(dataset, spec=limited_spec(dataset.spec, config.limits.cost))
    retuning_config = config if config is not None and config.retuning.controller else None
    # Loops are fitted as in the run, which may not know the plant of its log.
    environment = (
        None if config is None else simulator(config.data, config.evaluation, config.finetune)
    )
    plant = known_plant(environment, dataset)
    named: tuple[str, ...] = ()
    own: dict[str, Policy] = {}
    if config is not None:
        named = (config.evaluation.runs_today, config.retuning.controller)
        candidates = CandidateConfig.of(config)
        own = run_controllers(candidates, dataset, environment, dataset.spec, digests)
    if plant is None:
        facts, notes = declared_facts(dataset)
        if retuning_config is not None:
            facts, notes = run_facts(
                retuning_config.limits, retuning_config.retuning.exogenous, None, dataset
            )
        if config is not None and config.evaluation.is_gymnasium:
            judge = config.evaluation.environment
            notes += (f"from the log alone: the scores of the run in {judge} are not used here",)
        incumbent = next((name for name in named if name in own), "")
        return LogContext(dataset, facts, own, notes, incumbent, retuning_config)
    facts = PlantFacts(
        tuple(plant.action_rates()), tuple(plant.exogenous), plant.interlock, plant.objective
    )
    controllers: dict[str, Policy] = {**plant.tunings(), **own}
    usual, _ = usual_incumbent(plant, dataset)
    incumbent = next((name for name in named if name in controllers), usual)
    if retuning_config is not None:
        facts, _ = run_facts(
            retuning_config.limits, retuning_config.retuning.exogenous, environment, dataset
        )
    return LogContext(dataset, facts, controllers, (), incumbent, retuning_config)


def declared_facts(
    dataset: Dataset, rates: Sequence[float] = (), exogenous: Sequence[str] = ()
) -> tuple[PlantFacts, tuple[str, ...]]:
    """Declarations about the plant in the ``plant.toml`` of a converted log.

    Also returns sentences on which declarations are used.
    """
    # A historian records a plant that runs: no episode of an export begins with its start.
    converted = "configuration" in dataset.attributes.get("provenance", {})
    if importlib.util.find_spec("polars") is None:
        notes = ()
        if converted:
            notes = (
                "reward and costs are learned from the log; to use the expressions of plant.toml "
                "instead, install neorl-envs[etl]",
            )
        if dataset.attributes.get("interlocks"):
            notes += ("the interlocks of plant.toml are not used: install neorl-envs[etl]",)
        return PlantFacts(tuple(rates), tuple(exogenous), running=converted), notes
    from neorl_envs.plant_logs import declared_plant

    declared = declared_plant(dataset)
    exogenous_names = tuple(dict.fromkeys((*declared.exogenous, *exogenous)))
    facts = PlantFacts(
        tuple(rates), exogenous_names, declared.interlock, declared.objective, declared.setpoints,
        running=converted,
    )  # fmt: skip
    return facts, declared.notes


def run_facts(
    limits: LimitsConfig, exogenous: Sequence[str], environment: Plant | None, log: Dataset
) -> tuple[PlantFacts, tuple[str, ...]]:
    """Declarations about the plant of a run, and sentences on which of them are used.

    A log in a file that was recorded on a registered plant has the declarations of that plant.
    """
    plant = known_plant(environment, log)
    if plant is None:
        up, down = limits.rate_up, limits.rate_down
        rates = [min(up[channel.name], down[channel.name]) for channel in log.spec.action]
        return declared_facts(log, rates, exogenous)
    both = dict.fromkeys((*plant.exogenous, *exogenous))
    rates = tuple(plant.action_rates())
    return PlantFacts(rates, tuple(both), plant.interlock, plant.objective), ()


def policies_beside(path: Path, files: Sequence[str], spec: Spec) -> dict[str, Policy]:
    """The policies of a run and those in additional files, by file name.

    The fallback of a run is not a candidate: it acts when the guard takes over.

    Raises:
        InputError: If a file is not an artefact, has other channels, or repeats a name.
    """
    policies: dict[str, Policy] = {}
    run_files = sorted((path / POLICIES).glob("*.safetensors")) if path.is_dir() else []
    run_files = [file for file in run_files if file.stem != FALLBACK]
    for file in [*run_files, *map(Path, files)]:
        if file.stem in policies:
            raise InputError(f"{file}: another candidate is called {file.stem}; rename the file")
        policies[file.stem] = artefact_for(file, spec).policy
    return policies


def _config_of(run: RunDirectory) -> Config:
    from neorl_agents import ALGORITHMS
    from neorl_train.configuration._sections import config_type, load_toml

    return load_toml(run.config, config_type(ALGORITHMS)())
