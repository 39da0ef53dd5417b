"""Everything in a learner but its equations: units, windows, n-step targets, returns, masks."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning._contract import in_one_line, require_pair
from neorl_agents.learning._limits import require_costs, require_limits_in_log
from neorl_agents.learning._protocol import Fit, Metrics
from neorl_agents.learning._settings import OWN, Networks, Steps, require_choice, require_planned
from neorl_agents.learning._source import Source
from neorl_agents.learning._state import UPDATES, LearnerState, no_context
from neorl_agents.learning._unit_rows import UnitRows, unit_rows
from neorl_agents.networks import ACTIVATIONS, NETWORKS, named_as_graph
from neorl_agents.optimisers import OPTIMISERS, init_optimiser, minimise
from neorl_agents.policies import Preparation, prepare
from neorl_agents.sampling import Batch, Histories, NSteps, Rows, Sampler
from neorl_core import DataStatistics, InputError, Spec, Transition, as_arrays
from neorl_core.infrastructure import Range, require_settings, unknown_name

Loss = Callable[..., tuple[Float[Array, ""], Any]]


class BaseLearner(eqx.Module):
    """Everything that learners share, so that the file of a learner holds only its equations.

    A subclass has the hyperparameters of its equations as further fields. It lists in ``reads`` the
    fields of a row that the equations use, in ``rates`` the learning-rate field of every parameter,
    and defines

    - ``fresh(spec, key) -> (parameters, targets)``: dictionaries of networks;
    - ``learn(state, rows, key) -> (state, metrics)``: the gradient steps of one update, on
      :class:`neorl_agents.learning.UnitRows` with leading axes ``(batches_per_update, batch)``;
    - ``policy(state)``, if it has a policy;
    - ``check()``, which refuses hyperparameters that do not fit each other, if there can be any.

    The range of a hyperparameter is declared where its default is, with
    ``neorl_core.infrastructure.setting``; :meth:`validate` and the help of the commands read it.

    A subclass may replace the property ``sampler``; ``row_sampler`` sets how rows are chosen.

    Every learner deviates from its published code in three ways. A channel is scaled by at least a
    thousandth of its measuring range. Logged actions are clipped to ``1 - 1e-5`` of their range,
    since a tanh cannot reach its bound. If no row of the log is terminated, the mean is subtracted
    from its rewards (:func:`neorl_agents.policies.prepare`). Unmasked rows must be finite: a NaN
    there makes the parameters NaN. Datasets refuse such rows, and training stops if metrics or
    states are not finite.

    Attributes:
        networks: The form of the networks.
        steps: The settings of one gradient step.
    """

    networks: Networks = Networks()
    steps: Steps = Steps()

    reads: ClassVar[tuple[str, ...]] = ()
    rates: ClassVar[Mapping[str, str]] = {}
    discount: ClassVar[float] = 1.0
    """Discount of the reward per step; a field of learners with values."""
    own_optimisers: ClassVar[Mapping[str, str]] = {}
    """Optimisers of parameters that do not use ``steps.optimiser``, by the parameter's name."""
    schedules: ClassVar[tuple[str, ...]] = ()
    fine_tuning: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    supports_n_step: ClassVar[bool] = False
    """Whether ``learn`` multiplies next values by ``rows.discount``, which ``n_step`` needs."""
    keeps_limits: ClassVar[bool] = False
    """Whether it learns to keep the cost limits of the run; a log without costs is then refused."""
    needs_rollouts: ClassVar[bool] = False
    """Whether it learns only from fresh rollouts of its own policy, which no log holds."""

    # What a subclass defines.

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Initial parameters and targets by name; traced."""
        raise NotImplementedError(f"{type(self).__name__} must define fresh")

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes the gradient steps of one update."""
        raise NotImplementedError(f"{type(self).__name__} must define learn")

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""

    @property
    def row_sampler(self) -> Sampler:
        """The sampler of rows: single rows, or steps over ``steps.n_step``."""
        return NSteps(self.steps.n_step, self.discount) if self.steps.n_step > 1 else Rows()

    # What the training loop asks for.

    @property
    def batch_size(self) -> int:
        """Rows of one gradient step."""
        return self.steps.batch_size

    @property
    def batches_per_update(self) -> int:
        """One batch; a learner may override this."""
        return 1

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that are read; if more than one row is used, also those that end episodes."""
        no_windows = self.networks.encoder == "none" and self.steps.n_step == 1
        if no_windows and not self.keeps_limits:
            return self.reads
        return (*self.reads, *(f for f in ("terminated", "truncated") if f not in self.reads))

    @property
    def centred(self) -> Array:
        """Whether rewards are centred if no row is terminated: true if they are discounted.

        With a discount of one, the values of endless episodes are not defined.
        """
        return jnp.asarray(self.discount) < 1

    @property
    def sampler(self) -> Sampler:
        """The rows of :attr:`row_sampler`; windows, if networks have memory."""
        if self.networks.encoder == "none":
            return self.row_sampler
        return Histories(self.row_sampler, self.networks.history_steps)

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_settings(self)
        require_choice(self, "networks.kind", NETWORKS)
        if self.networks.activation != OWN:
            require_choice(self, "networks.activation", ACTIVATIONS)
        require_choice(self, "steps.optimiser", OPTIMISERS)
        if self.steps.n_step > 1 and not self.supports_n_step:
            raise ValueError(
                f"{type(self).__name__}.steps.n_step must be 1, got {self.steps.n_step}: this "
                "learner learns from single steps"
            )
        # The fields that this class knows by their meaning, also where they declare no range.
        name = type(self).__name__
        Range(low=0, high=1).require(f"{name}.discount", self.discount)
        for rate in dict.fromkeys(self.rates.values()):
            if not hasattr(self, rate):
                fields = [field.name for field in dataclasses.fields(self)]
                raise unknown_name(f"field in {name}.rates", rate, fields)
            Range(above=0).require(f"{name}.{rate}", getattr(self, rate))
        self.check()

    def fits(self) -> Mapping[str, Fit]:
        """No other learner is trained first."""
        return {}

    def source(self, given: Source) -> Source:
        """The source of the run."""
        return given

    def require_log(self, spec: Spec, rows: Transition) -> None:
        """Refuses a log from which nothing can be learned.

        Raises:
            InputError: If the learner keeps limits and the log cannot teach them; see
                :func:`neorl_agents.learning.require_limits_in_log`.
        """
        if self.keeps_limits:
            require_limits_in_log(type(self).__name__, spec, rows)

    def log_tables(self, spec: Spec, rows: Transition) -> Any:
        """The tables of the sampler, made of all rows.

        Raises:
            InputError: If :meth:`require_log` refuses the log.
        """
        self.require_log(spec, rows)
        return self.sampler.tables(rows)

    def prepare(self, spec: Spec, statistics: DataStatistics) -> Preparation:
        """The maps of a training split; see :func:`neorl_agents.policies.prepare`.

        Rewards are centred if :attr:`centred` is true.
        """
        window = self.networks.encoding(spec).window
        spec = named_as_graph(spec, self.networks.graph)
        return _prepare(self.steps.reward_scale, window, spec, statistics, self.centred)

    def init(
        self,
        spec: Spec,
        statistics: DataStatistics,
        key: PRNGKeyArray,
        *,
        preparation: Preparation | None = None,
        context: Mapping[str, LearnerState] | None = None,
    ) -> LearnerState:
        """A fresh state; see :class:`neorl_agents.Learner`."""
        self.validate()
        require_planned(self)
        if self.keeps_limits:
            require_costs(type(self).__name__, spec)
        if preparation is None:
            preparation = self.prepare(spec, statistics)
        return _init(as_arrays(self), preparation, no_context(context), key, spec)

    def update(
        self, state: LearnerState, batch: Transition | Batch, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Calls ``learn`` once, on the batch in the units of the networks."""
        rows = unit_rows(state.preparation, batch, discount=self.discount)
        missing = [name for name in self.reads if name != "mask" and getattr(rows, name) is None]
        if missing:
            raise InputError(
                f"the batch has no {missing[0]}, which {type(self).__name__} needs; give every row "
                f"its {missing[0]}"
            )
        result = self.learn(state, rows, key)
        state, metrics = require_pair(f"{type(self).__name__}.learn", result)
        return state.with_counters(**{UPDATES: state.updates + 1}), metrics

    def optimiser_of(self, name: str) -> str:
        """The name of the optimiser of one parameter."""
        return self.own_optimisers.get(name, self.steps.optimiser)

    def descend(
        self,
        state: LearnerState,
        name: str,
        loss: Loss,
        *data: Any,
        rate: float | Float[Array, ""] | None = None,
    ) -> tuple[LearnerState, Float[Array, ""], Any]:
        """Takes one gradient step of one parameter.

        Args:
            state: State before the step.
            name: Name of the parameter.
            loss: Function of the parameter and ``data`` that returns a scalar, and any further
                result that is needed, or ``None``.
            *data: Further arguments of the loss.
            rate: Learning rate, if it is not that of :attr:`rates`.

        Returns:
            The state after the step, the loss before it, and the further result of the loss.
        """
        new_parameters, optimiser, value, aux = minimise(
            self.optimiser_of(name),
            loss,
            state.parameters[name],
            state.optimisers[name],
            getattr(self, self.rates[name]) if rate is None else rate,
            *data,
        )
        state = state.with_parameters(**{name: new_parameters}).with_optimisers(**{name: optimiser})
        return state, value, aux


@partial(jax.jit, static_argnums=(0, 1, 2))
def _prepare(
    reward_scale: Any, window: int, spec: Spec, statistics: DataStatistics, centred: Array
) -> Preparation:
    return prepare(spec, statistics, reward_scale, window=window, centred=centred)


@partial(jax.jit, static_argnums=4)
def _init(
    learner: BaseLearner,
    preparation: Preparation,
    context: dict[str, Any],
    key: PRNGKeyArray,
    spec: Spec,
) -> LearnerState:
    with in_one_line(learner, "fresh"):
        fresh = learner.fresh(spec, key)
    parameters, targets = _named(learner, fresh)
    optimisers = {
        name: init_optimiser(
            learner.optimiser_of(name), value, getattr(learner, learner.rates[name])
        )
        for name, value in parameters.items()
    }
    counters = {UPDATES: jnp.zeros((), jnp.int32)}
    return LearnerState(parameters, targets, optimisers, counters, preparation, context)


def _named(learner: BaseLearner, fresh: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two dictionaries of ``fresh``, whose names must fit each other and the rates."""
    name = type(learner).__name__
    two = isinstance(fresh, tuple) and len(fresh) == 2
    if not two or not all(isinstance(part, dict) for part in fresh):
        raise InputError(
            f"{name}.fresh must return two dictionaries, the parameters and the targets (`return "
            f"parameters, {{}}` if nothing follows them), got a {type(fresh).__name__}"
        )
    parameters, targets = fresh
    for parameter in parameters:
        if parameter not in learner.rates:
            raise InputError(
                f"{name}.rates has no learning rate for the parameter {parameter!r}; add "
                f'{{{parameter!r}: "the field that holds it"}}'
            )
    for target in targets:
        if target not in parameters:
            raise InputError(
                f"{name}.fresh returns a target {target!r}, but no parameter has this name; its "
                f"parameters are {', '.join(parameters)}"
            )
    return parameters, targets
