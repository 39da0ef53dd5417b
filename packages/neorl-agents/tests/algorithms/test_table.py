"""Learners from outside: registered or by an entry point, checked before they are used."""

import sys
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from neorl_agents import ALGORITHMS, BC, Algorithm, LearnerState, load_policy, save_policy
from neorl_agents.learning import check_algorithm, only_batch, unit_rows
from neorl_agents.networks import init_mlp, tanh
from neorl_agents.policies import network_policy, prepare
from neorl_agents.sampling import Rows
from neorl_core import InputError, as_arrays
from neorl_core.infrastructure import Registry, require_settings, setting
from neorl_core.testing import assert_close


class Depth(eqx.Module):
    """Settings of one's own, nested."""

    layers: int = eqx.field(static=True, default=1)
    width: int = eqx.field(static=True, default=8)


class Nudge(eqx.Module):
    """Plain gradient descent on the squared distance to the log: the bare protocol, no shell."""

    rate: float = setting(1e-2, above=0)
    depth: Depth = Depth()
    batch_size: int = eqx.field(static=True, default=32)

    fields: ClassVar[tuple[str, ...]] = ("obs", "action", "mask")
    batches_per_update: ClassVar[int] = 1
    sampler: ClassVar[Rows] = Rows()
    schedules: ClassVar[tuple[str, ...]] = ()

    def validate(self):
        require_settings(self)

    def fits(self):
        return {}

    def source(self, given):
        return given

    def prepare(self, spec, statistics):
        return prepare(spec, statistics, "none")

    def init(self, spec, statistics, key, *, preparation=None, context=None):
        widths = (spec.n_obs, *[self.depth.width] * self.depth.layers, spec.n_action)
        actor = init_mlp(widths, key, output=tanh)
        preparation = preparation or self.prepare(spec, statistics)
        counters = {"updates": jnp.zeros((), jnp.int32)}
        return LearnerState({"actor": actor}, {}, {}, counters, preparation, {})

    def update(self, state, batch, key):
        rows = only_batch(unit_rows(state.preparation, batch))

        def distance(actor):
            return jnp.mean(jnp.square(actor(rows.obs) - rows.action))

        before = state.parameters["actor"]
        loss, slope = jax.value_and_grad(distance)(before)
        actor = jax.tree.map(lambda p, g: p - self.rate * g, before, slope)
        state = state.with_parameters(actor=actor).with_counters(updates=state.updates + 1)
        return state, {"actor_loss": loss}

    def policy(self, state):
        return network_policy(state.preparation, state.parameters["actor"])


@pytest.fixture
def table():
    """A table of its own, so that no other test meets what is added to it."""
    return Registry(ALGORITHMS.group, ALGORITHMS.kind, {"bc": BC}, check_algorithm)


def test_a_learner_of_public_names_is_an_algorithm(table, problem, tmp_path):
    table.register("nudge", Nudge)
    plain = table["nudge"]()
    assert isinstance(plain, Algorithm)
    state = plain.init(problem.spec, problem.statistics, jax.random.key(0))
    update = jax.jit(Nudge.update)
    losses = []
    for _ in range(3):
        state, metrics = update(as_arrays(plain), state, problem.batch(plain), jax.random.key(1))
        losses.append(float(metrics["actor_loss"]))
    assert losses[2] < losses[0]
    save_policy(tmp_path / "p", plain.policy(state), problem.spec, problem.log.obs[:32])
    assert_close(load_policy(tmp_path / "p").policy.network, state.parameters["actor"])


def test_an_entry_point_brings_a_learner(tmp_path, monkeypatch):
    (tmp_path / "foreign_learners.py").write_text(
        "from neorl_agents import BC\n\nclass Copy(BC):\n    '''Behaviour cloning again.'''\n"
    )
    info = tmp_path / "foreign_learners-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-learners\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text(
        "[neorl.algorithms]\ncopy = foreign_learners:Copy\nbroken = foreign_learners:Nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    table = Registry(ALGORITHMS.group, ALGORITHMS.kind, {"bc": BC}, check_algorithm)
    assert "foreign_learners" not in sys.modules
    assert {"copy", "broken"} < set(ALGORITHMS)
    assert issubclass(table["copy"], BC)
    assert table.origin("copy") == "foreign-learners 0.3"
    with pytest.raises(InputError, match=r"'broken' of foreign-learners 0\.3 cannot be imported"):
        table.find("broken")
    monkeypatch.delitem(sys.modules, "foreign_learners")


def changed(**namespace):
    return type("Changed", (Nudge,), namespace)


def with_a_bad_default():
    class Negative(Nudge):
        rate: float = -1.0

    return Negative


def without_a_default():
    class Bare(Nudge):
        depth: int = eqx.field(static=True, kw_only=True)

    return Bare


def with_a_function():
    class Odd(Nudge):
        activation: object = eqx.field(static=True, default=tanh)

    return Odd


def with_a_text_leaf():
    class Loose(Nudge):
        mode: str = "fast"

    return Loose


def with_a_nested_function():
    class Wild(Depth):
        activation: object = eqx.field(static=True, default=tanh)

    class Odd(Nudge):
        depth: Depth = Wild()

    return Odd


def with_a_nested_text_leaf():
    class Loose(Depth):
        mode: str = "fast"

    class Odd(Nudge):
        depth: Depth = Loose()

    return Odd


class NoModule:
    pass


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoModule, "expected a frozen dataclass registered with JAX"),
        (Nudge(), "expected a frozen dataclass registered with JAX"),
        (
            Depth,
            "has no fields, batch_size, batches_per_update, sampler, schedules, validate, ",
        ),
        (changed(fields=("obs", "act")), "its fields must be columns of a Transition"),
        (with_a_bad_default(), r"Negative\.rate must be a number above 0, got -1.0"),
        (without_a_default(), "its field depth needs a default"),
        (with_a_function(), "its field activation must be a number, a string, a tuple of these or"),
        (
            with_a_nested_function(),
            r"its field depth\.activation must be a number, a string, a tup",
        ),
        (with_a_text_leaf(), "its strings and shapes must be static fields"),
        (with_a_nested_text_leaf(), "its strings and shapes must be static fields"),
    ],
)
def test_what_is_no_learner_is_refused_by_what_it_lacks(table, kind, message):
    with pytest.raises(InputError, match=message):
        table.register("wrong", kind)
    assert "wrong" not in table


@pytest.mark.parametrize("name", ["my-learner", "2nd", "class"])
def test_a_name_must_fit_into_a_configuration(table, name):
    with pytest.raises(InputError, match="must be an identifier"):
        table.register(name, Nudge)


def test_the_packages_own_learners_keep_the_contract():
    for name, kind in ALGORITHMS.items():
        check_algorithm(name, kind)
