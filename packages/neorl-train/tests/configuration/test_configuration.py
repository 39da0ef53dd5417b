"""A configuration is typed, strict, complete and hashed; a bad value is named before anything."""

import dataclasses
import json
import math
import tomllib

import pytest

from neorl_agents import ALGORITHMS, CQL, IQL
from neorl_agents.learning import Networks
from neorl_core import InputError
from neorl_core.infrastructure import require_settings
from neorl_core.testing import check_ranges
from neorl_envs import make
from neorl_train import configure
from neorl_train._command.subcommands.run import read_fine_tuning_options, read_run_options
from neorl_train.choosing import ChooseOptions
from neorl_train.configuration import (
    DataConfig,
    config_hash,
    config_to_dict,
    config_type,
    dump_toml,
    load_toml,
    size_notes,
    untrained_notes,
    validate,
)
from neorl_train.federation import Federation

DEFAULT = config_type(ALGORITHMS)()


@pytest.fixture
def load(tmp_path):
    def from_text(text):
        path = tmp_path / "config.toml"
        path.write_text(text)
        return load_toml(path, DEFAULT)

    return from_text


def test_the_defaults_are_valid_and_complete():
    validate(DEFAULT)
    plain = config_to_dict(DEFAULT)
    assert set(plain["algorithms"]) == set(DEFAULT.training.algorithms)
    assert all(value is not None for section in plain.values() for value in section.values())


@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
def test_a_setting_without_a_range_is_finite_unless_its_default_is_not(
    make_line, monkeypatch, tmp_path, number
):
    """From the command line, a file and keywords, of a learner from elsewhere."""

    class Loose(make_line):
        sharpness: float = 1.0
        patience: float = math.inf

    monkeypatch.setitem(ALGORITHMS._builtin, "loose", Loose)
    table = {"loose": Loose}
    path = tmp_path / "loose.toml"
    path.write_text(
        f"training.algorithms = ['loose']\nalgorithms.loose.sharpness = {number}\n"
        "algorithms.loose.patience = -inf\n"
    )
    words = ["--training.algorithms", "loose", "--algorithms.loose.patience", "-inf"]
    typed, _ = read_run_options([*words, f"--algorithms.loose.sharpness={number}"], table)
    expected = rf"^algorithms\.loose\.sharpness must be a finite number, got {number}$"
    for config in (typed, load_toml(path, config_type(table)())):
        assert config.algorithms.loose.patience == -math.inf
        with pytest.raises(InputError, match=expected):
            validate(config)
    with pytest.raises(InputError, match=expected):
        configure(
            training={"algorithms": ["loose"]},
            algorithms={"loose": {"sharpness": float(number)}},
        )
    validate(read_run_options(words, table)[0])


def test_the_defaults_are_those_of_a_real_job():
    assert DEFAULT.data.recorded("log").steps >= 100_000
    assert DEFAULT.data.recorded("plant").steps == 0
    assert DataConfig(steps=7).recorded("plant").steps == 7
    assert set(DEFAULT.training.algorithms) == {"bc", "td3_bc", "iql"}
    assert len(DEFAULT.training.seeds) >= 4
    assert DEFAULT.evaluation.starts >= 100
    assert DEFAULT.output.tracking
    plant = make(DEFAULT.data.source)
    assert set(plant.penalty_weights()) == {channel.name for channel in plant.spec.cost}


def test_what_was_written_is_read_back(load):
    changed = load(
        """
        [data]
        source = "plant.h5"
        [penalty]
        overheating = 2
        [training]
        algorithms = ["iql", "bc"]
        seeds = [7]
        [algorithms.iql]
        expectile = 0.9
        networks.hidden = [16]
        networks.activation = "tanh"
        networks.layer_norm = "yes"
        variant = "corl"
        """
    )
    networks = changed.algorithms.iql.networks
    assert networks == Networks((16,), activation="tanh", layer_norm="yes")
    assert changed.penalty == {"overheating": 2.0}
    text = dump_toml(config_to_dict(changed))
    assert load(text).algorithms.iql == changed.algorithms.iql
    assert config_hash(load(text)) == config_hash(changed)
    assert tomllib.loads(text)["training"]["seeds"] == [7]


def test_the_hash_is_of_what_decides_the_result():
    output = dataclasses.replace(DEFAULT.output, directory="elsewhere", tracking=False)
    rarely = dataclasses.replace(DEFAULT.checkpoints, interval=20_000)
    same = dataclasses.replace(DEFAULT, output=output, checkpoints=rarely)
    assert config_hash(same) == config_hash(DEFAULT)
    other = dataclasses.replace(DEFAULT, penalty={"a": 1.0})
    assert config_hash(other) != config_hash(DEFAULT)
    unused = dataclasses.replace(DEFAULT.algorithms.td3_bc, alpha=9.0)
    only_bc = dataclasses.replace(DEFAULT.training, algorithms=("bc",))
    bc = dataclasses.replace(DEFAULT, training=only_bc)
    with_other = dataclasses.replace(bc.algorithms, td3_bc=unused)
    assert config_hash(dataclasses.replace(bc, algorithms=with_other)) == config_hash(bc)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[trainin]\nupdates = 1", "unknown key 'trainin'; did you mean 'training'?"),
        ("[training]\nupdate = 1", r"key in \[training\] 'update'; did you mean 'updates'?"),
        (
            "[algorithms.iql]\nexpectil = 1.0",
            r"\[algorithms.iql\] 'expectil'; did you .*'expectile'",
        ),
        ("[algorithms.iqll]\nalpha = 1.0", r"\[algorithms\] 'iqll'; did you mean 'iql'?"),
        ("[training]\nupdates = 1.5", "training.updates must be an integer, got 1.5"),
        ("[training]\nupdates = true", "training.updates must be an integer, got True"),
        ("[training]\nseeds = 3", "training.seeds must be a list, got 3"),
        ("[training]\nseeds = ['a']", r"training.seeds\[0\] must be an integer, got 'a'"),
        ("[output]\ntracking = 1", "output.tracking must be true or false, got 1"),
        ("training = 3", "training must be a table, got 3"),
        ("penalty = 3", "penalty must be a table, got 3"),
        ("[penalty]\na = 'x'", "penalty.a must be a number, got 'x'"),
        (
            "[algorithms.iql]\nvariant = 'orginal'",
            "algorithms.iql.variant.*did you mean 'original'",
        ),
        ("[training", "not a TOML file"),
        (
            "[log]\nfiles = []\n[[tag]]\nname = 'a'",
            "describes a log .* `neorl-envs convert",
        ),
        ("\x00", "not a TOML file"),
    ],
)
def test_a_file_is_read_strictly(load, text, message):
    with pytest.raises(InputError, match=message) as error:
        load(text)
    assert "config.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.toml: there is no such file"):
        load_toml(tmp_path / "nowhere.toml", DEFAULT)
    with pytest.raises(InputError, match="cannot read "):
        load_toml(tmp_path, DEFAULT)


def test_a_run_that_retunes_needs_no_learner():
    """Without a learner and without a controller it is refused, below."""
    parts = {
        "data": dataclasses.replace(DEFAULT.data, source="CSTR-v0"),
        "training": dataclasses.replace(DEFAULT.training, algorithms=()),
    }
    retuning = dataclasses.replace(DEFAULT.retuning, controller="PI")
    validate(dataclasses.replace(DEFAULT, **parts, retuning=retuning))


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("data", {"source": ""}, "data.source must name"),
        ("data", {"steps": 0}, "data.steps must be at least 1"),
        ("training", {"algorithms": ()}, "training.algorithms is empty"),
        ("training", {"algorithms": ("iqll",)}, "unknown algorithm 'iqll'; did you mean 'iql'?"),
        ("training", {"algorithms": ("bc", "bc")}, "names bc twice"),
        ("training", {"seeds": ()}, r"training.seeds must be one or more integers in \[0, 21474"),
        ("training", {"seeds": (1, 1)}, "names 1 twice"),
        ("training", {"chunk": 501}, "training.chunk must be a multiple of 2, the critic steps"),
        ("training", {"updates": 750}, "training.updates must be a positive multiple of"),
        ("checkpoints", {"interval": 700}, "checkpoints.interval must be a positive multiple"),
        ("monitors", {"rows": 4}, "neighbours must be at most monitors.rows = 4, got 5"),
    ],
)
def test_a_value_that_does_not_fit_is_named(section, values, message):
    changed = dataclasses.replace(getattr(DEFAULT, section), **values)
    with pytest.raises(InputError, match=message) as error:
        validate(dataclasses.replace(DEFAULT, **{section: changed}))
    assert "\n" not in str(error.value)


SECTIONS = [field.name for field in dataclasses.fields(DEFAULT) if field.name != "algorithms"]
UNDECLARED = {"supervisor": [field.name for field in dataclasses.fields(DEFAULT.supervisor)]}
"""Numbers whose range is that of a function of neorl_safety, which checks it."""


@pytest.mark.parametrize("name", [name for name in SECTIONS if name != "penalty"])
def test_values_out_of_range_are_refused_by_name(name):
    check_ranges(
        getattr(DEFAULT, name),
        lambda section: validate(dataclasses.replace(DEFAULT, **{name: section})),
        free=UNDECLARED.get(name, ()),
    )


@pytest.mark.parametrize("kind", [ChooseOptions, Federation])
def test_options_out_of_range_are_refused_by_name(kind):
    check_ranges(kind(), lambda options: require_settings(options, ""))


def test_an_infinite_learning_rate_is_refused_for_what_it_is():
    """It is above 0: the bound alone would not say what is wrong with it."""
    bc = dataclasses.replace(DEFAULT.algorithms.bc, learning_rate=float("inf"))
    algorithms = dataclasses.replace(DEFAULT.algorithms, bc=bc)
    words = r"^algorithms\.bc\.learning_rate must be a finite number above 0, got inf$"
    with pytest.raises(InputError, match=words):
        validate(dataclasses.replace(DEFAULT, algorithms=algorithms))


def test_a_schedule_that_ends_before_the_run_is_named():
    iql = dataclasses.replace(DEFAULT.algorithms.iql, decay_updates=10_000)
    algorithms = dataclasses.replace(DEFAULT.algorithms, iql=iql)
    with pytest.raises(InputError, match=r"iql\.decay_updates is 10000, and the run has 30000 upd"):
        validate(dataclasses.replace(DEFAULT, algorithms=algorithms))


@pytest.mark.parametrize("penalty", [-1.0, float("nan"), float("inf")])
def test_a_penalty_is_finite_and_not_negative(penalty):
    with pytest.raises(InputError, match=r"penalty\.a, .*, must be a finite number of at least 0"):
        validate(dataclasses.replace(DEFAULT, penalty={"a": penalty}))


def test_a_hyperparameter_out_of_range_is_named(load):
    changed = load("[algorithms.iql]\nexpectile = 3.0")
    with pytest.raises(
        InputError, match=r"algorithms\.iql\.expectile must be a number in \(0, 1\)"
    ):
        validate(changed)


def test_the_values_of_a_learner_that_is_not_trained_are_checked_too(load):
    with pytest.raises(InputError, match=r"algorithms\.sac_n\.n_critics must be .* 2, got 0"):
        validate(load("[algorithms.sac_n]\nn_critics = 0"))
    changed = load(
        "[training]\nalgorithms = ['bc']\n[algorithms.rebrac]\ntau = 0.1\nnetworks.hidden = [8]"
    )
    (note,) = untrained_notes(changed, DEFAULT.algorithms)
    assert note.startswith(
        "algorithms.rebrac has networks.hidden, tau, but this run does not train"
    )
    assert untrained_notes(changed, changed.algorithms) == [], "as the run had it that is tuned"
    # The length of the run is that of the trained ones: 500 is no multiple of 3.
    validate(load("[training]\nalgorithms = ['bc']\n[algorithms.rebrac]\npolicy_delay = 3"))


@pytest.mark.parametrize(
    ("words", "chunk"),
    [
        ((), 500),
        (("--training.updates", "300"), 100),
        (("--training.updates", "10000"), 500),
        (("--finetune.environments", "20", "--training.updates", "40"), 20),
    ],
)
def test_the_defaults_of_fine_tuning_are_admitted_together(monkeypatch, words, chunk):
    """The chunk of the run is divided until it fits the updates, unless it is named."""
    training = dataclasses.replace(DEFAULT.training, algorithms=("iql",))
    settings = dataclasses.replace(DEFAULT.finetune, run="runs/0001")
    run = dataclasses.replace(DEFAULT, training=training, finetune=settings)
    monkeypatch.setattr("neorl_train._job.offline_run.fine_tuning_defaults", lambda path: run)
    config, _ = read_fine_tuning_options(["runs/0001", *words], ALGORITHMS)
    assert config.training.chunk == chunk
    validate(config)
    typed = ["runs/0001", "--algorithms.td3-bc.alpha", "1"]
    with pytest.raises(InputError, match=r"alpha is an option of td3_bc, which .* it trains iql;"):
        read_fine_tuning_options(typed, ALGORITHMS)
    named = ["runs/0001", "--training.updates", "300", "--training.chunk", "500"]
    config, _ = read_fine_tuning_options(named, ALGORITHMS)
    with pytest.raises(InputError, match=r"training\.updates must be .*chunk = 500, got 300"):
        validate(config)


def test_brackets_that_are_nested_too_deep_are_named(tmp_path):
    path = tmp_path / "deep.toml"
    path.write_text(f"a = {'[' * 3000}{']' * 3000}")
    with pytest.raises(InputError, match=r"deep.toml is not a TOML file: its brackets"):
        load_toml(path, DEFAULT)


class Varied(IQL):
    """Implicit Q-learning with a field more and another default."""

    noise: float = 0.1
    tau: float = 0.5


class VariedAgain(Varied):
    """A variation of a variation, with networks of its own."""

    networks: Networks = Networks(hidden=(16,))


class OtherVaried(CQL):
    """A variation of a learner whose defaults in a run are those of its class."""


def test_a_variation_has_the_defaults_of_a_run_that_its_learner_has():
    table = {"cql": CQL, "iql": IQL, "other": OtherVaried, "twice": VariedAgain, "varied": Varied}
    learners = config_type(table)().algorithms
    for field in dataclasses.fields(IQL):
        expected = 0.5 if field.name == "tau" else getattr(learners.iql, field.name)
        assert getattr(learners.varied, field.name) == expected, field.name
    assert learners.iql != IQL(), "a run has defaults of its own"
    assert learners.twice.networks == Networks(hidden=(16,))
    assert learners.twice.steps == learners.iql.steps
    assert learners.twice.tau == 0.5
    assert learners.other == OtherVaried()
    assert DEFAULT.algorithms.iql_lag == ALGORITHMS["iql_lag"](), (
        "those of neorl-agents keep theirs"
    )


def test_learners_of_different_sizes_are_noted():
    learners = {name: getattr(DEFAULT.algorithms, name) for name in ("bc", "iql", "cql")}
    (note,) = size_notes(learners)
    assert "bc, iql: hidden layers of 64 64, batches of 128; cql: hidden layers of 256 256" in note
    assert "the same networks.hidden and steps.batch_size" in note
    assert size_notes({"bc": learners["bc"], "iql": learners["iql"], "own": object()}) == []


def test_a_learner_that_only_a_script_knew_is_explained(load):
    message = (
        r"config\.toml: unknown key in \[algorithms\] 'iqll'; did you mean 'iql'\? .*\. "
        r"A learner of your own needs .* point neorl\.algorithms, or in Python ALGORITHMS\.register"
    )
    with pytest.raises(InputError, match=message):
        load("[algorithms.iqll]\ndiscount = 0.9")


def test_a_learner_of_a_run_that_is_not_installed_is_named_with_its_origin(load, tmp_path):
    origins = {"algorithm": {"mine": "my-learners 0.3", "iql": ""}}
    (tmp_path / "run.json").write_text(json.dumps({"origins": origins}))
    message = r"config\.toml: the learner mine of this run \(my-learners 0\.3\) is not installed"
    with pytest.raises(InputError, match=message):
        load("[algorithms.mine]\ndiscount = 0.9")
    (tmp_path / "run.json").write_text("damaged")
    with pytest.raises(InputError, match=r"unknown key in \[algorithms\] 'mine'"):
        load("[algorithms.mine]\ndiscount = 0.9")
