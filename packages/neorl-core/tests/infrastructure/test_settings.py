"""A range is declared on its field; the check reads it, and its law finds what is missing."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import InputError
from neorl_core.infrastructure import MAX_SEED, Range, range_of, require_settings, setting
from neorl_core.testing import check_ranges

if TYPE_CHECKING:
    from decimal import Decimal


@dataclasses.dataclass(frozen=True)
class Inner:
    share: float = setting(0.5, low=0, high=1, also=math.inf)
    widths: tuple[int, ...] = setting((8, 8), low=1)


@dataclasses.dataclass(frozen=True)
class Outer:
    rate: float = setting(0.1, above=0, below=1)
    count: int = setting(3, low=1, high=9)
    delay: int = setting(-1, low=1, also=-1)
    weight: float = setting(0.0)
    flag: bool = False
    rule: Literal["mean", "median"] = "mean"
    plain: float = 0.0
    endless: float = math.inf
    names: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    anything: Any = None
    inner: Inner = Inner()


@dataclasses.dataclass(frozen=True)
class Other(Outer):
    rate: float = 0.2


@dataclasses.dataclass(frozen=True)
class Later:
    """An annotation that is imported for type checkers alone."""

    rate: float = 0.1
    amount: "Decimal | None" = None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": 0.0}, "rate must be a number in (0, 1), got 0.0"),
        ({"rate": math.inf}, "rate must be a finite number in (0, 1), got inf"),
        ({"rate": "fast"}, "rate must be a number in (0, 1), got 'fast'"),
        ({"rate": np.array([0.5, 2.0])}, "rate must be a number in (0, 1), got array([0.5, 2. ])"),
        ({"count": 2.0}, "count must be an integer in [1, 9], got 2.0"),
        ({"delay": 0}, "delay must be an integer of at least 1, or -1, got 0"),
        ({"weight": math.nan}, "weight must be a finite number, got nan"),
        ({"flag": 1}, "flag must be true or false, got 1"),
        ({"rule": "mode"}, "rule must be one of mean, median, got 'mode'"),
        ({"plain": math.nan}, "plain must be a finite number, got nan"),
        ({"plain": -math.inf}, "plain must be a finite number, got -inf"),
        ({"endless": math.nan}, "endless must be a finite number, got nan"),
        ({"means": (0.5, math.inf)}, "means must be a list of finite numbers, got (0.5, inf)"),
        ({"plain": "much"}, "plain must be a number, got 'much'"),
        ({"names": "one"}, "names must be a list of strings, got 'one'"),
        ({"means": (0.5, "x")}, "means must be a list of numbers, got (0.5, 'x')"),
        ({"inner": Inner(share=1.5)}, "inner.share must be a number in [0, 1], or inf, got 1.5"),
        (
            {"inner": Inner(widths=())},
            "inner.widths must be one or more integers of at least 1, such as (8, 8), got ()",
        ),
    ],
)
def test_the_field_and_what_it_must_be_are_named(changes: dict[str, Any], message: str) -> None:
    for where, prefix in ((None, "Outer."), ("", ""), ("run", "run.")):
        with pytest.raises(InputError) as refused:
            require_settings(Outer(**changes), where)
        assert str(refused.value) == f"{prefix}{message}"


@pytest.mark.parametrize(
    "changes",
    [
        {"endless": -math.inf},
        {"plain": 2},
        {"delay": -1},
        {"names": ("one",)},
        {"means": (1, np.float32(2))},
        {"anything": object()},
        {"rate": np.array([0.5, 0.6])},
        {"rate": jnp.asarray(0.5, jnp.bfloat16)},
        {"flag": np.bool_(True)},
        {"inner": Inner(share=math.inf, widths=(1,))},
    ],
)
def test_what_is_in_range_or_has_another_annotation_passes(changes: dict[str, Any]) -> None:
    require_settings(Outer(**changes))


def test_traced_values_pass() -> None:
    def checked(rate: Any) -> Any:
        require_settings(Outer(rate=rate, plain=rate, means=(rate,)))
        Range(above=0).require("rate", rate)
        return rate

    assert jax.jit(checked)(-1.0) == -1.0


@pytest.mark.parametrize("field", ["rate", "plain"])
def test_known_arrays_are_checked_inside_a_trace(field: str) -> None:
    fitting, unknown = jnp.float32(0.5), jnp.float32(math.nan)  # in the trace they would be traced

    def checked(number: Any, value: Any) -> Any:
        require_settings(Outer(**{field: value}))
        return number

    jax.eval_shape(lambda number: checked(number, fitting), 1.0)
    with pytest.raises(InputError, match=f"{field} must be"):
        jax.eval_shape(lambda number: checked(number, unknown), 1.0)


def test_a_range_is_inherited_with_another_default() -> None:
    seed = setting(0, low=0, high=MAX_SEED)
    assert range_of(dataclasses.make_dataclass("Seeded", [("seed", int, seed)]), "seed") == Range(
        low=0, high=2**31 - 1
    )
    assert range_of(Other, "rate") == Range(above=0, below=1)
    assert range_of(Other, "plain") is None
    with pytest.raises(InputError, match=r"Other\.rate must be a number in \(0, 1\), got 1"):
        require_settings(Other(rate=1))


def test_a_field_is_checked_by_its_default_where_annotations_cannot_be_read() -> None:
    require_settings(Later())
    with pytest.raises(InputError, match=r"Later\.rate must be a number, got 'fast'"):
        require_settings(Later(rate="fast"))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("range_", "text", "named"),
    [
        (Range(), "finite", "a finite number"),
        (Range(also=math.inf), "finite, or inf", "a finite number, or inf"),
        (Range(low=0), "at least 0", "a number of at least 0"),
        (Range(above=0), "above 0", "a number above 0"),
        (Range(high=5), "at most 5", "a number of at most 5"),
        (Range(below=5), "below 5", "a number below 5"),
        (Range(low=0, high=1), "in [0, 1]", "a number in [0, 1]"),
        (Range(above=0.5, below=1), "in (0.5, 1)", "a number in (0.5, 1)"),
    ],
)
def test_a_range_as_text(range_: Range, text: str, named: str) -> None:
    assert range_.text == text
    assert range_.named("a number") == named


def test_the_law_of_ranges_passes_a_right_class() -> None:
    free = ("plain", "endless", "means")
    check_ranges(Outer(), require_settings, free=free)
    check_ranges(Other(), require_settings, free=free)


def test_the_law_of_ranges_finds_what_is_missing() -> None:
    with pytest.raises(AssertionError, match=r"declare the range of Outer\.plain"):
        check_ranges(Outer(), require_settings, free=("endless", "means"))
    with pytest.raises(AssertionError, match=r"Inner\.share = 'text' is accepted"):
        check_ranges(Inner(), lambda options: None)

    def refuses_too_little(options: Inner) -> None:
        Range(low=-1, high=1, also=math.inf).require("Inner.share", options.share)

    with pytest.raises(AssertionError, match=r"Inner\.share = -5e-324 is accepted"):
        check_ranges(Inner(), refuses_too_little)

    def says_nothing(options: Inner) -> None:
        raise ValueError("no")

    with pytest.raises(AssertionError, match="is refused with another message: no"):
        check_ranges(Inner(), says_nothing)
