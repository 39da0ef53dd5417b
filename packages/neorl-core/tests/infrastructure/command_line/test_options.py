"""Options are the fields of a dataclass; every mistake is one line with the nearest option."""

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

import pytest

from neorl_core import InputError
from neorl_core.infrastructure import setting
from neorl_core.infrastructure.command_line import Positional, parse_options


@dataclasses.dataclass(frozen=True)
class Clip:
    norm: float = 1.0


@dataclasses.dataclass(frozen=True)
class Training:
    updates: int = 1000
    rate: float = 1e-3
    shuffle: bool = True
    clip: Clip = Clip()


@dataclasses.dataclass(frozen=True)
class Options:
    """Does something with a file.

    example: program act log.h5
    """

    file: Positional[Path]
    training: Training = Training()
    penalty: dict[str, float] = dataclasses.field(default_factory=dict)
    dry_run: bool = False


def parsed(*words: str) -> Options:
    return parse_options(Options, words, program="program act")


def test_words_become_typed_values() -> None:
    options = parsed("log.h5", "--training.updates", "5", "--penalty", "heat", "2", "--dry-run")
    assert options.file == Path("log.h5")
    assert options.training == Training(updates=5)
    assert options.penalty == {"heat": 2.0}
    assert options.dry_run
    assert not parsed("a", "--training.no-shuffle").training.shuffle


@dataclasses.dataclass(frozen=True)
class Tables:
    """Settings of which one consists of tables."""

    steps: int = 1
    loops: tuple[dict[str, Any], ...] = ()


def test_an_option_of_tables_is_referred_to_the_configuration_file() -> None:
    """It was called unknown, with its own name as the suggestion."""
    with pytest.raises(InputError, match="--loops consists of tables, so it can be given in a"):
        parse_options(Tables, ["--loops", "one"], program="program act")


def test_of_an_option_that_is_given_twice_the_last_counts_and_it_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = parsed("log.h5", "--training.updates", "5", "--dry-run", "--training.updates=7")
    assert options.training.updates == 7
    output = capsys.readouterr().err
    assert output == "program act: --training.updates is given twice; the last one counts\n"


def test_defaults_may_be_given() -> None:
    default = Training(updates=7, rate=0.5)
    options = parse_options(Training, ["--updates", "8"], program="p", default=default)
    assert options == Training(updates=8, rate=0.5)


@dataclasses.dataclass(frozen=True)
class Learner:
    """Learns with :class:`Training` and ``more``.

    Attributes:
        rate: How fast.
        training: How long.
    """

    rate: float = 0.5
    training: Training = Training(updates=77)


@dataclasses.dataclass(frozen=True)
class Many:
    """Has many sections."""

    learners: Learner = Learner()
    low_rate: Training = Training(rate=0.25)
    quiet: bool = False


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--quiet",),
        ("--low_rate.updates=5", "--learners.training.no-shuffle"),
        ("--learners.rate", "0.125", "--learners.training.rate", "2"),
    ],
)
def test_sections_that_nobody_names_keep_their_values(words: tuple[str, ...]) -> None:
    default = Many(low_rate=Training(updates=321), learners=Learner(rate=0.75))
    options = parse_options(Many, words, program="p", default=default)
    assert (options == default) == (not words)
    assert options.low_rate.updates in (321, 5)
    assert options.learners.training.updates == 77
    if not words or words[0] != "--learners.rate":
        assert options.learners.rate == 0.75


MISTAKES = {
    "a mistyped option": (["a", "--training.updats", "3"], "did you mean --training.updates?"),
    "with a value": (["a", "--training.updats=3"], "unknown option '--training.updats'; did"),
    "without its section": (["a", "--updates", "3"], "did you mean --training.updates?"),
    "underscores": (["a", "--dry_rum"], "did you mean --dry-run?"),
    "a negation": (["a", "--training.no-shufle"], "did you mean --training.no-shuffle?"),
    "of another name": (
        ["a", "--training.folder", "x"],
        "unknown option '--training.folder'; section training has --training.updates, ",
    ),
    "of a section that is mistyped": (["a", "--trainig.updats", "3"], "mean --training.updates?"),
    "of another section": (["a", "--file.rate", "3"], "did you mean --training.rate?"),
    "of a section inside": (["a", "--training.norm", "3"], "did you mean --training.clip.norm?"),
    "a value of a switch": (
        ["a", "--training.shuffle", "False"],
        "--training.shuffle takes no value, got 'False'; --training.no-shuffle switches it off",
    ),
    "nothing like it": (["a", "--zzz"], "unknown option '--zzz'; see `program act --help`"),
    "a word too many": (["a", "b"], "unexpected word 'b'; options begin with --; see"),
    "no file": ([], "the following arguments are required: FILE"),
    "no value": (["a", "--training.updates"], "--training.updates: expected one argument"),
    "an integer": (["a", "--training.updates", "x"], "updates must be an integer, got 'x'"),
    "a number": (["a", "--training.rate", "x"], "--training.rate must be a number, got 'x'"),
    "pairs": (
        ["a", "--penalty", "heat"],
        "--penalty takes pairs of a name and a number, such as --penalty NAME 0.75; 'heat' has no "
        "value",
    ),
    "a number in a pair": (
        ["a", "--penalty", "heat", "0.5", "cold", "0,75", "--training.updates", "3"],
        "a name and a number, such as --penalty NAME 0.75; got '0,75' for cold",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = MISTAKES[case]
    with pytest.raises(InputError) as error:
        parsed(*words)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith("see `program act --help`")
    output = capsys.readouterr()
    assert output.err == output.out == ""


def test_a_positional_word_is_no_option() -> None:
    with pytest.raises(InputError) as error:
        parsed("a", "--file", "b")
    assert "did you mean --file" not in str(error.value)


NUMBERS = ("-1", "-0.5", "-.5", "-1e-3", "-inf")


@pytest.mark.parametrize("word", NUMBERS)
def test_a_negative_number_is_a_value_and_no_option(word: str) -> None:
    assert parsed("a", "--training.rate", word).training.rate == float(word)
    assert parsed("a", "--penalty", "heat", word, "cold", "1").penalty["heat"] == float(word)


@dataclasses.dataclass(frozen=True)
class Every:
    """Has an option of every type.

    Attributes:
        limit: Two numbers for a name.
    """

    rule: Literal["mean", "median"] = "mean"
    rules: tuple[Literal["mean", "median"], ...] = ()
    widths: tuple[int, ...] = setting((8, 8), low=1)
    share: float = setting(0.5, low=0, high=1)
    limit: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    out: Path | None = None


def test_values_have_the_declared_types() -> None:
    words = "--rule median --rules mean median --widths --limit heat -inf 350 --out a/b"
    options = parse_options(Every, words.split(), program="p")
    assert options == Every(
        "median", ("mean", "median"), (), 0.5, {"heat": (-math.inf, 350.0)}, Path("a/b")
    )
    assert parse_options(Every, [], program="p") == Every()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rule meen", "--rule: invalid choice: 'meen' (choose from "),
        (
            "--limit heat",
            "--limit takes a name and 2 numbers, such as --limit NAME 0.75 0.75; 'heat'",
        ),
        (
            "--limit heat 1",
            "--limit takes a name and 2 numbers, such as --limit NAME 0.75 0.75; see",
        ),
        ("--limit heat 1 x", "such as --limit NAME 0.75 0.75; got '1 x' for heat"),
        ("--widths 8 x", "--widths must be an integer, got 'x'"),
        ("--widths 8 0", "--widths must be an integer of at least 1, got 0; see `p --help`"),
        ("--share 2", "--share must be a number in [0, 1], got 2.0; see `p --help`"),
        ("--share nan", "--share must be a finite number in [0, 1], got nan; see `p --help`"),
    ],
)
def test_a_bad_value_is_named(words: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_options(Every, words.split(), program="p")
    assert message in str(error.value)


def test_words_between_options_are_taken_in_their_order() -> None:
    @dataclasses.dataclass(frozen=True)
    class Files:
        first: Positional[Path]
        others: Positional[tuple[Path, ...]] = ()
        seed: int = 0

    options = parse_options(Files, ["a", "--seed", "3", "b", "c"], program="p")
    assert options == Files(Path("a"), (Path("b"), Path("c")), 3)
