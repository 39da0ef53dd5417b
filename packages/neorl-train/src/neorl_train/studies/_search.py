"""A search over settings with Optuna: each sample depends on the trials so far."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import RetuneSettings, learned_plants, select
from neorl_core import InputError
from neorl_core.infrastructure import install_line
from neorl_train._job.plant_model import log_context
from neorl_train.candidates._given import stored_pool
from neorl_train.configuration._validation import configure
from neorl_train.data._behaviours import own_episodes
from neorl_train.runs._directory import DIVERGED, FINISHED, RunDirectory
from neorl_train.studies._sweep import Cell, Search, SweepFile, carry_out, print_flushed, state_of

JOURNAL = "search.log"
WARM_UP = 5
"""Number of random trials before the search learns from them."""


class PredictedGain:
    """Objective of a search: the gain over the incumbent that a plant model predicts.

    For each learner of a run, this is the lower bound of its predicted gain in return, averaged
    over its seeds; the best learner is used. If the rule of ``neorl-train choose`` refuses a
    policy, for example because it is predicted to break a limit, its value is reduced by the spread
    of the returns between episodes of the log. The simulator and the starts of the evaluation are
    not used. The model of a log is fitted once.
    """

    def __init__(self) -> None:
        self._plants: dict[tuple[str, int], Any] = {}

    def __call__(self, run: RunDirectory) -> float:
        """The value of a finished run.

        Raises:
            InputError: If nothing represents the incumbent: the log is not of a built-in plant, and
                behaviour cloning was not trained.
        """
        config, log = configure(run.config), log_context(run.path)
        pool = stored_pool(run.path)
        candidates = {**log.controllers, **pool.policies}
        requested = config.evaluation.runs_today
        # The logged behaviour is not a single policy.
        incumbent = requested if requested in candidates else log.incumbent
        if not incumbent:
            incumbent = next((candidate.id for candidate in pool.named("bc")), "")
        if not incumbent:
            raise InputError(
                f"{config.data.source} does not state which controller runs today; add bc to "
                "training.algorithms, which imitates the log and is then the reference of the "
                "predicted gains"
            )
        key = log.dataset.content_hash, config.data.seed
        if key not in self._plants:
            self._plants[key] = learned_plants(
                log.dataset.transitions,
                log.dataset.spec,
                config.data.seed,
                log.facts,
                RetuneSettings(model=HistoryModelSettings()),
                by_incumbent=own_episodes(log.dataset, incumbent),
            )
        plants = self._plants[key]
        _, table = select(plants, {incumbent: candidates[incumbent], **candidates}, incumbent)
        groups: dict[str, list[float]] = {}
        for prediction in table:
            if prediction.name in pool and prediction.name != incumbent:
                bound = prediction.low - (plants.scale if prediction.refusals else 0.0)
                groups.setdefault(pool[prediction.name].group, []).append(bound)
        values = [float(np.mean(bounds)) for bounds in groups.values()]
        finite = [value for value in values if np.isfinite(value)]
        if not finite:
            raise InputError("no policy of the run has a finite predicted gain")
        return max(finite)


def search(
    sweep: SweepFile,
    settings: Search,
    objective: Callable[[RunDirectory], float],
    *,
    processes: int = 1,
    cluster: str = "",
    together: bool = True,
    print_line: Callable[[str], None] = print_flushed,
) -> list[Cell]:
    """Tries settings until the number of trials is reached; a stopped search continues.

    Trial ``k`` is sampled with the seed of the search and ``k``, so a resumed search samples what
    it would have sampled without the interruption. The trials of one batch are sampled before any
    of their results are known, each as if the earlier ones had turned out badly ("constant liar").

    Args:
        sweep: The file of the search.
        settings: Its space, number of trials and seed.
        objective: Value of a finished run, to be maximised.
        processes: Number of simultaneous trials.
        cluster: Address of a Ray cluster; empty for none.
        together: Whether the trials of a batch whose learners differ only in numbers are trained in
            one program, if they share this process.
        print_line: Called with a line for each trial.

    Raises:
        InputError: If Optuna is not installed, or a trial is not a valid configuration.
    """
    study, optuna = _study(sweep.directory, settings)
    distributions = {name: _distribution(optuna, domain) for name, domain in settings.space.items()}
    at_once = settings.batch if settings.batch > 1 else processes
    unfinished = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.RUNNING]
    while True:
        numbers = [(trial.number, dict(trial.params)) for trial in unfinished]
        unfinished = []
        count = len(study.trials)
        # A stopped batch is completed first, so that its results are known to the next one.
        in_batch = -count % at_once
        for _ in range(min(settings.trials - count, in_batch or (0 if numbers else at_once))):
            count = len(study.trials)
            study.sampler = optuna.samplers.TPESampler(
                seed=settings.seed + count, n_startup_trials=WARM_UP, constant_liar=True
            )
            trial = study.ask(distributions)
            numbers.append((trial.number, dict(trial.params)))
        if not numbers:
            break
        carry_out_cells = partial(
            carry_out, processes=processes, cluster=cluster, together=together
        )
        _try(sweep, study, optuna, numbers, objective, carry_out_cells, print_line)
    return [sweep.cell(trial.params) for trial in study.trials]


def _try(
    sweep: SweepFile,
    study: Any,
    optuna: Any,
    numbers: Sequence[tuple[int, dict[str, Any]]],
    objective: Callable[[RunDirectory], float],
    carry_out_cells: Callable[..., dict[str, str]],
    print_line: Callable[[str], None],
) -> None:
    cells = {number: sweep.cell(values) for number, values in numbers}
    distinct = list({cell.name: cell for cell in cells.values()}.values())
    state = state_of(sweep.directory, distinct)
    failed = carry_out_cells(state, sweep.directory, print_line=lambda _: None)
    runs = state_of(sweep.directory, distinct).runs
    for number, cell in cells.items():
        if cell.name in failed:
            study.tell(number, state=optuna.trial.TrialState.FAIL)
            print_line(f"trial {number}: {cell.text()}: failed: {failed[cell.name]}")
            continue
        if cell.name not in runs or runs[cell.name].record()["status"] != FINISHED:
            print_line(f"trial {number}: {cell.text()}: stopped; the same command resumes it")
            continue
        if diverged := runs[cell.name].record().get(DIVERGED):  # the others' value is not its own
            study.tell(number, state=optuna.trial.TrialState.FAIL)
            print_line(f"trial {number}: {cell.text()}: failed: {', '.join(diverged)} diverged")
            continue
        value = objective(runs[cell.name])
        study.tell(number, value)
        print_line(f"trial {number}: {cell.text()}: {value:.4g} by the plant model")


def best_trial(directory: Path, settings: Search) -> tuple[dict[str, Any], float] | None:
    """Settings and value of the best trial of a search; ``None`` if none finished."""
    study, optuna = _study(directory, settings)
    complete = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    if not complete:
        return None
    best = max(complete, key=lambda trial: trial.value)
    return dict(best.params), float(best.value)


def _study(directory: Path, settings: Search) -> tuple[Any, Any]:
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise InputError(
            f"a search needs Optuna: {install_line('neorl-train[search]')}; a [grid] does not"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directory.mkdir(parents=True, exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(directory / JOURNAL)))
    study = optuna.create_study(
        storage=storage, study_name="search", direction="maximize", load_if_exists=True
    )
    identity = {"space": settings.space, "seed": settings.seed}
    if settings.batch > 1:  # keeps searches valid that began before batches existed
        identity["batch"] = settings.batch
    if study.user_attrs and study.user_attrs.get("search") != identity:
        raise InputError(
            f"{directory} holds a search over another space, with another seed or batch; choose "
            "another folder with --output"
        )
    study.set_user_attr("search", identity)
    return study, optuna


def _distribution(optuna: Any, domain: Any) -> Any:
    if isinstance(domain, list):
        return optuna.distributions.CategoricalDistribution(domain)
    low, high, log = domain["low"], domain["high"], bool(domain.get("log", False))
    if isinstance(low, int) and isinstance(high, int):
        return optuna.distributions.IntDistribution(low, high, log=log)
    return optuna.distributions.FloatDistribution(float(low), float(high), log=log)
