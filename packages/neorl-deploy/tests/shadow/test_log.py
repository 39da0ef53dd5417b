"""The small reader of logs: what it accepts, and each refusal in one line."""

import json

import h5py
import numpy as np
import pytest

from neorl_deploy import DeployError
from neorl_deploy.shadow import read_log


def test_a_dataset_file_is_read(finished_run, log_columns):
    log = read_log(finished_run / "dataset.h5")
    columns = log_columns()
    np.testing.assert_array_equal(log.obs, columns["obs"])
    np.testing.assert_array_equal(log.action, columns["action"])
    assert log.starts.tolist() == [0, 40, 80, 120, 160]
    assert log.obs_channels == (("level", "m"), ("temperature", "K"), ("pressure", "bar"))
    assert log.action_channels == (("valve", "%"), ("jacket", "K"))
    assert log.mask.all()
    assert log.content_hash.startswith("sha256:")


def test_optional_columns_enter_the_hash(tmp_path, write_log, log_columns):
    columns = {**log_columns(), "behaviour": np.zeros(5, "<i4")}
    read_log(write_log(tmp_path / "log.h5", columns))


def _drop(name):
    return lambda columns: {k: v for k, v in columns.items() if k != name}


def _replace(name, function):
    return lambda columns: {**columns, name: function(columns[name])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop("terminated"), "column 'terminated' is missing"),
        (_drop("action"), "column 'action' is missing"),
        (_replace("obs", lambda x: x.astype("<f8")), "column 'obs' is float64"),
        (_replace("obs", lambda x: x[:, :2].copy()), "do not fit 3 and 2 channels"),
        (_replace("mask", lambda x: x[:-1].copy()), "do not fit"),
        (_replace("episode_starts", lambda x: x[::-1].copy()), "not ascending"),
        (_replace("episode_starts", lambda x: x[1:].copy()), "not ascending rows from 0"),
        (_replace("episode_starts", lambda x: x + 9999 * (x > 0)), "not ascending"),
    ],
)
def test_malformed_columns_are_refused_by_name(tmp_path, write_log, log_columns, change, message):
    path = write_log(tmp_path / "log.h5", change(log_columns()))
    with pytest.raises(DeployError, match=message):
        read_log(path)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("format", "other", "has format 'other', expected 'neorl-dataset'"),
        ("version", 1, "version 1 of neorl-dataset, this neorl-deploy reads 2"),
        ("spec", "{", "attribute 'spec' is not valid JSON"),
        ("spec", "[]", "attribute 'spec' is not a JSON object"),
        ("content_hash", "sha256:0", "do not match their content hash"),
        ("attributes", "7", "attribute 'attributes' is not a JSON object"),
    ],
)
def test_malformed_attributes_are_refused(
    tmp_path, write_log, log_columns, attribute, value, message
):
    path = write_log(tmp_path / "log.h5", log_columns(), **{attribute: value})
    with pytest.raises(DeployError, match=message):
        read_log(path)


def test_a_changed_number_is_found(tmp_path, write_log, log_columns):
    path = write_log(tmp_path / "log.h5", log_columns())
    with h5py.File(path, "r+") as file:
        file["reward"][7] += 1
    with pytest.raises(DeployError, match="do not match their content hash"):
        read_log(path)


def test_columns_outside_the_file_are_refused(tmp_path, write_log, log_columns):
    other = write_log(tmp_path / "other.h5", log_columns())
    for kind in ("soft", "external", "virtual", "stored elsewhere"):
        path = write_log(tmp_path / "log.h5", log_columns())
        with h5py.File(path, "r+") as file:
            del file["obs"]
            if kind == "soft":
                file["obs"] = h5py.SoftLink("/next_obs")
            elif kind == "external":
                file["obs"] = h5py.ExternalLink(str(other), "/obs")
            elif kind == "virtual":
                layout = h5py.VirtualLayout((200, 3), "<f4")
                layout[:] = h5py.VirtualSource(str(other), "obs", (200, 3))
                file.create_virtual_dataset("obs", layout)
            else:
                (tmp_path / "raw").write_bytes(bytes(2400))
                file.create_dataset(
                    "obs", (200, 3), "<f4", external=[(str(tmp_path / "raw"), 0, 2400)]
                )
        with pytest.raises(DeployError, match="'obs' is missing, or not stored in this file"):
            read_log(path)


def test_a_file_that_declares_gigabytes_is_refused(tmp_path, write_log, log_columns):
    path = write_log(tmp_path / "log.h5", log_columns())
    with h5py.File(path, "r+") as file:
        del file["obs"]
        file.create_dataset("obs", (2**31, 3), "<f4", chunks=(1024, 3))
    with pytest.raises(DeployError, match=r"has shape .* but no data"):
        read_log(path)


def test_other_files_are_refused(tmp_path, finished_run):
    cases = {
        "No such file": tmp_path / "none.h5",
        "starts with b'hello'": tmp_path / "text.h5",
        "starts with b''": tmp_path / "empty.h5",
        "damaged or incomplete": tmp_path / "truncated.h5",
        "damaged archive": tmp_path / "truncated.npz",
        "has no 'action'": tmp_path / "partial.npz",
        "shapes that do not match": tmp_path / "shapes.npz",
    }
    (tmp_path / "text.h5").write_text("hello")
    (tmp_path / "empty.h5").write_bytes(b"")
    complete = (finished_run / "dataset.h5").read_bytes()
    (tmp_path / "truncated.h5").write_bytes(complete[: len(complete) // 2])
    np.savez(tmp_path / "partial.npz", obs=np.zeros((4, 2)))
    complete = (tmp_path / "partial.npz").read_bytes()
    (tmp_path / "truncated.npz").write_bytes(complete[: len(complete) // 2])
    zeros = np.zeros(4)
    np.savez(tmp_path / "shapes.npz", obs=zeros, action=zeros, done=zeros, truncated=zeros)
    for message, path in cases.items():
        with pytest.raises(DeployError, match=message) as error:
            read_log(path)
        assert "\n" not in str(error.value)


def test_a_neorl2_archive_is_read_by_the_stated_rules(tmp_path):
    ended = np.array([0, 0, 1, 0, 0, 1, 0])
    np.savez(
        tmp_path / "plant.npz",
        obs=np.arange(14.0).reshape(7, 2),
        action=np.zeros((7, 1)),
        done=ended * [1, 1, 1, 0, 0, 0, 0],
        truncated=ended * [0, 0, 0, 1, 1, 1, 1],
    )
    log = read_log(tmp_path / "plant.npz")
    assert log.starts.tolist() == [0, 3, 6]
    assert log.obs_channels == (("obs_0", "?"), ("obs_1", "?"))
    assert "CC-BY-4.0" in log.attribution
    assert json.dumps(log.content_hash) == '""'


@pytest.mark.parametrize(
    ("name", "rows", "episodes", "widths"),
    [
        ("DMSD-high-100000-train.npz", 100_000, 1000, (6, 2)),
        ("Simglucose-high-100000-train.npz", 100_257, 280, (31, 1)),
    ],
)
def test_third_party_logs_have_their_published_size(name, rows, episodes, widths, shared_data):
    log = read_log(shared_data("neorl2", name))
    assert log.obs.shape == (rows, widths[0])
    assert log.action.shape == (rows, widths[1])
    assert len(log.starts) == episodes


def test_an_empty_log_says_so(tmp_path, write_log, log_columns):
    columns = {
        name: column if name == "episode_starts" else column[:0]
        for name, column in log_columns().items()
    }
    with pytest.raises(DeployError, match="has no rows; a replay needs at least one"):
        read_log(write_log(tmp_path / "log.h5", columns))
    np.savez(
        tmp_path / "empty.npz",
        obs=np.zeros((0, 2)), action=np.zeros((0, 1)), done=np.zeros(0), truncated=np.zeros(0),
    )  # fmt: skip
    with pytest.raises(DeployError, match="has no rows; a replay needs at least one"):
        read_log(tmp_path / "empty.npz")
