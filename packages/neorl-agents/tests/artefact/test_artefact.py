"""The policy artefact: equal to the bit after reload, and no damage goes unseen."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, ArtefactError, load_policy, save_policy
from neorl_agents.artefact import POLICY_KINDS, policy_actions, write_sealed
from neorl_agents.artefact import _artefact as sealed_file
from neorl_agents.networks import init_mlp
from neorl_agents.policies import GaussianPolicy, NetworkPolicy
from neorl_agents.testing import sized
from neorl_core import as_arrays
from neorl_core.control import PID, ConstantPolicy

from .test_controller_kinds import KINDS as CONTROLLERS

KEY = jax.random.key(0)


def pid(n_override: int = 0) -> PID:
    two, some = jnp.ones(2), jnp.ones(n_override)
    return PID(
        kp=2 * two, ki=0.1 * two, kd=0 * two, tau=two, setpoint=300 * two, bias=340 * two,
        low=jnp.asarray([0.0, 330.0]), high=jnp.asarray([3e4, 370.0]), dt=jnp.asarray(10.0),
        override_below=some, override_cap=some, measured=(0, 2),
        override_output=(1,) * n_override, override_measured=(3,) * n_override,
    )  # fmt: skip


@pytest.fixture(scope="module")
def policies(problem, few, state_of_form):
    def of(name, encoder="none", **settings):
        plain = sized(ALGORITHMS[name](), encoder=encoder, history_steps=3, **settings, **few)
        return plain.policy(jax.device_put(state_of_form(plain, problem)))

    return {
        "history history": of("sac_n", "history"),
        "history gru": of("sac_n", "gru"),
        "network": of("iql"),
        "network mixture": of("bc", variant="mixture", n_components=3),
        "history mixture": of("bc", "gru", variant="mixture"),
        "network of noise": of("fql"),
        "history of noise": of("fql", "gru"),
        "sequence": of("dt", "history"),
        "network of a latent": of("bcq_lag"),
        "history of a latent": of("bcq_lag", "gru"),
        "budgeted": of("caps"),
        "budgeted with memory": of("caps", "gru"),
        "pid": pid(),
        "pid with override": pid(2),
        "constant": ConstantPolicy(jnp.asarray([10.0, 350.0])),
    }


@pytest.fixture(scope="module")
def parity_obs(problem):
    return np.asarray(problem.log.obs[:40])


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "policy.safetensors"


STORED = [
    "network",
    "network mixture",
    "history mixture",
    "history history",
    "history gru",
    "network of a latent",
    "history of a latent",
    "budgeted",
    "budgeted with memory",
    "pid",
    "pid with override",
    "constant",
]


@pytest.mark.parametrize("name", STORED)
def test_reload_is_equal_to_the_bit(name, policies, problem, parity_obs, path):
    policy, metadata = policies[name], {"algorithm": "iql", "nested": {"rate": [1, 2.5, None]}}
    digest = save_policy(path, policy, problem.spec, parity_obs, metadata)
    artefact = load_policy(path)
    assert jax.tree.structure(artefact.policy) == jax.tree.structure(as_arrays(policy))
    for a, b in zip(jax.tree.leaves(artefact.policy), jax.tree.leaves(policy), strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
    actions = np.asarray(policy_actions(artefact.policy, artefact.parity_obs))
    assert actions.tobytes() == artefact.parity_actions.tobytes()
    np.testing.assert_array_equal(artefact.parity_obs, parity_obs)
    assert artefact.spec == problem.spec
    assert artefact.metadata == metadata
    assert artefact.kind == name.split()[0]
    assert artefact.digest == digest
    assert len(digest) == 64


def test_every_kind_is_tested(policies):
    # Kinds that another installed distribution brings are tested there.
    own = {name for name in POLICY_KINDS if not POLICY_KINDS.origin(name)}
    elsewhere = {"average"}  # tests/policies/test_average_policy.py
    assert {name.split()[0] for name in policies} | {*CONTROLLERS} | elsewhere == own


def test_same_content_gives_the_same_bytes(policies, problem, parity_obs, path):
    save_policy(path, policies["network"], problem.spec, parity_obs, {"a": 1})
    first = path.read_bytes()
    save_policy(path, policies["network"], problem.spec, parity_obs, {"a": 1})
    assert path.read_bytes() == first
    save_policy(path, policies["network"], problem.spec, parity_obs, {"a": 2})
    assert path.read_bytes() != first


def test_the_file_opens_with_the_safetensors_package_alone(policies, problem, parity_obs, path):
    from safetensors import safe_open

    save_policy(path, policies["network"], problem.spec, parity_obs)
    with safe_open(path, framework="numpy") as file:
        text = json.loads(file.metadata()["neorl_policy"])
        names = set(file.keys())
    assert (text["header"]["format"], text["header"]["version"]) == ("neorl-policy", 1)
    assert set(text["header"]["arrays"]) == names
    assert {"policy/network/weights/0", "parity/obs", "parity/actions"} <= names


def test_no_flipped_byte_goes_unseen(policies, problem, parity_obs, path):
    """Every byte of the length, the header, its padding and the seal; a sample of the arrays."""
    save_policy(path, policies["constant"], problem.spec, parity_obs, {"seal": "0" * 64})
    data = path.read_bytes()
    header_end = 8 + int.from_bytes(data[:8], "little")
    rng = np.random.default_rng(0)
    positions = [*range(header_end), *rng.integers(header_end, len(data), 500), len(data) - 1]
    for position in positions:
        mutant = bytearray(data)
        mutant[position] ^= int(rng.integers(1, 256))
        path.write_bytes(mutant)
        with pytest.raises(ArtefactError):
            load_policy(path)
    path.write_bytes(data)
    load_policy(path)


def test_flipped_bits_of_a_network_are_seen(policies, problem, parity_obs, path):
    save_policy(path, policies["network"], problem.spec, parity_obs)
    data = path.read_bytes()
    rng = np.random.default_rng(1)
    for position in rng.integers(0, len(data), 400):
        mutant = bytearray(data)
        mutant[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(mutant)
        with pytest.raises(ArtefactError, match=r"policy\.safetensors"):
            load_policy(path)


def test_truncated_extended_and_foreign_files_are_refused(policies, problem, parity_obs, path):
    save_policy(path, policies["constant"], problem.spec, parity_obs)
    data = path.read_bytes()
    cuts = [0, 1, 7, 8, 9, 100, *range(200, len(data), 97), len(data) - 1]
    others = [data + b"\0", data + data, b"\x80\x04pickle" * 40, os.urandom(4096), bytes(4096)]
    for content in [data[:cut] for cut in cuts] + others:
        path.write_bytes(content)
        with pytest.raises(ArtefactError, match=r"policy\.safetensors") as error:
            load_policy(path)
        assert "\n" not in str(error.value)


def test_large_files_are_refused_unread(policies, problem, parity_obs, path):
    save_policy(path, policies["constant"], problem.spec, parity_obs)
    with pytest.raises(ArtefactError, match="at most 100 are allowed"):
        load_policy(path, max_bytes=100)


def resealed(path: Path, **changes) -> None:
    """A file with a valid seal and another header, as a wrong writer would leave it."""
    arrays, header, _ = sealed_file.read_sealed(path, 2**20)
    write_sealed(path, arrays, header | changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"version": 2}, "has version 2 of neorl-policy, .* reads 1"),
        ({"version": None}, "has version None"),
        ({"format": "neorl-run"}, "has format 'neorl-run', expected 'neorl-policy'"),
        (
            {"kind": "pickle"},
            "unknown policy kind 'pickle'; .*known: network, history, pid, constant",
        ),
        ({"arrays": {}}, "differs from its description in the header"),
        ({"spec": {}}, "malformed header"),
        ({"static": {"widths": "wide"}}, "malformed header"),
        (
            {
                "static": {
                    "widths": [4, 2],
                    "activation": "relu",
                    "output": "tanh",
                    "layer_norm": False,
                    "recurrent": 0,
                    "mixture": False,
                }
            },
            "must be float32",
        ),
        (
            {
                "static": {
                    "widths": [4, 16, 16, 2],
                    "activation": "swish",
                    "output": "tanh",
                    "layer_norm": False,
                    "recurrent": 0,
                    "mixture": False,
                }
            },
            "malformed header",
        ),
    ],
)
def test_sealed_but_wrong_headers_are_refused(changes, match, policies, problem, parity_obs, path):
    save_policy(path, policies["network"], problem.spec, parity_obs)
    resealed(path, **changes)
    with pytest.raises(ArtefactError, match=match) as error:
        load_policy(path)
    assert "\n" not in str(error.value)


def test_missing_and_surplus_arrays_are_refused(policies, problem, parity_obs, path):
    """Row E05: a file whose arrays were renamed is refused."""
    for name in ("policy/action", "parity/obs"):
        save_policy(path, policies["constant"], problem.spec, parity_obs)
        arrays, header, _ = sealed_file.read_sealed(path, 2**20)
        write_sealed(path, {k: v for k, v in arrays.items() if k != name}, header)
        with pytest.raises(ArtefactError, match="missing"):
            load_policy(path)
    save_policy(path, policies["constant"], problem.spec, parity_obs)
    arrays, header, _ = sealed_file.read_sealed(path, 2**20)
    arrays["policy/extra"] = arrays["policy/action"]
    header["arrays"]["policy/extra"] = header["arrays"]["policy/action"]
    write_sealed(path, arrays, header)
    with pytest.raises(ArtefactError, match="2 arrays of a policy, expected 1"):
        load_policy(path)


def test_a_missing_file_is_an_os_error(path):
    with pytest.raises(FileNotFoundError):
        load_policy(path)


def test_a_full_disk_leaves_the_old_file(policies, problem, parity_obs, path, monkeypatch):
    save_policy(path, policies["constant"], problem.spec, parity_obs)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_policy(path, policies["network"], problem.spec, parity_obs)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("count", [0, 31])
def test_too_few_observations_are_refused(count, policies, problem, parity_obs, path):
    with pytest.raises(ValueError, match="at least 32 observations of 4 channels"):
        save_policy(path, policies["constant"], problem.spec, parity_obs[:count])


def test_observations_must_be_finite_and_of_the_plant(policies, problem, parity_obs, path):
    with pytest.raises(ValueError, match="4 channels"):
        save_policy(path, policies["constant"], problem.spec, parity_obs[:, :3])
    bad = parity_obs.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="finite"):
        save_policy(path, policies["constant"], problem.spec, bad)
    assert not path.exists()


def test_policies_that_do_not_fit_are_refused(policies, problem, parity_obs, path):
    with pytest.raises(ValueError, match="2 finite numbers for each observation"):
        save_policy(path, ConstantPolicy(jnp.ones(3)), problem.spec, parity_obs)
    with pytest.raises(ValueError, match="that are not"):
        save_policy(path, ConstantPolicy(jnp.full(2, jnp.nan)), problem.spec, parity_obs)
    explorer = GaussianPolicy(policies["network"], jnp.zeros(2))
    with pytest.raises(TypeError, match="GaussianPolicy cannot be stored"):
        save_policy(path, explorer, problem.spec, parity_obs)
    network = policies["network"]
    swish = init_mlp((4, 8, 2), KEY, activation=jax.nn.swish)
    foreign = NetworkPolicy(network.obs, swish, network.action, network.low, network.high)
    with pytest.raises(ValueError, match="cannot be stored, because it has no registered name"):
        save_policy(path, foreign, problem.spec, parity_obs)
    assert not path.exists()


@pytest.mark.parametrize("metadata", [{"x": np.nan}, {"x": object()}, {"x": np.float32(1)}])
def test_metadata_must_be_json(metadata, policies, problem, parity_obs, path):
    with pytest.raises(ValueError, match="must be plain JSON"):
        save_policy(path, policies["constant"], problem.spec, parity_obs, metadata)
    assert not path.exists()
