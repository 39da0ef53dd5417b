"""A bundle that somebody wrote on purpose: whatever it says, the answer is one line.

The mutants are resealed, as whoever wants to deceive would do, so that the checksums fit and the
parsers have to look for themselves.
"""

import copy
import io
import json
import os
import threading
import zipfile

import numpy as np
import pytest

from neorl_deploy import BundleError
from neorl_deploy.bundle import _files, read_bundle
from neorl_deploy.bundle._manifest import _forms

from ..forged import checksums, reseal

DOCUMENTS = ("manifest.json", "constraints.json", "guard.json", "verdict.json", "evaluation.json")
SURROGATE, HUGE, INFINITE = "lone \udc00", "<1e999>", "<inf>"
VALUES = (
    None, True, False, 0, -1, 1, 0.5, -1e-300, 1e300, 10**400, -(10**30), "", "x", "\n", "0" * 5000,
    "0001\nEvery byte is as signed with your key.\x1b[8m", "\u202eyolped", SURROGATE, HUGE,
    INFINITE, [], {}, [[]], [None], {"": {}}, {"name": 3}, [{"name": "a", "unit": "b"}],
)  # fmt: skip


def spelled(document):
    """JSON that says what a strict writer never would."""
    text = json.dumps(document, indent=2, sort_keys=True)
    return text.replace(f'"{HUGE}"', "1e999").replace(f'"{INFINITE}"', "Infinity").encode()


def places(value, path=()):
    """Every place of a document, the containers included."""
    yield path
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(entry, (*path, key))


def changed(document, rng):
    """A document with one to three changes, each at a place that was drawn."""
    document = copy.deepcopy(document)
    for _ in range(rng.integers(1, 4)):
        every = [place for place in places(document) if place]
        if not every:
            return document
        *above, last = every[rng.integers(len(every))]
        parent = document
        for key in above:
            parent = parent[key]
        how = rng.integers(5)
        if how == 0:
            del parent[last]
        elif how == 1 and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        elif how == 1:
            parent[f"{last} "] = parent.pop(last)
        elif how == 2 and isinstance(parent, list):
            parent[:] = [parent[i] for i in rng.permutation(len(parent))]
        elif how == 2:
            other = list(parent)[rng.integers(len(parent))]
            parent[last], parent[other] = parent[other], parent[last]
        else:
            parent[last] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    return document


def damaged_archive(data, rng):
    """Test vectors with odd arrays, or an archive with odd bytes."""
    if rng.random() < 0.4:
        raw = bytearray(data)
        for place in rng.integers(len(raw), size=rng.integers(1, 6)):
            raw[place] = rng.integers(256)
        return bytes(raw)
    arrays = dict(np.load(io.BytesIO(data)))
    name = list(arrays)[rng.integers(len(arrays))]
    array = arrays[name]
    others = [
        array.flat[0], array.astype("f8"), array.astype("U5"), array.astype(object), array[:0],
        array[..., None], array.T, array[:3], np.full_like(array, 255), -1.0 * array,
    ]  # fmt: skip
    arrays[name] = others[rng.integers(len(others))]
    if rng.random() < 0.2:
        del arrays[list(arrays)[rng.integers(len(arrays))]]
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def mutants(exported, rng, count):
    """Files of bundles that differ from a good one, each resealed."""
    good = {path.name: path.read_bytes() for path in exported.iterdir()}
    parsed = {name: json.loads(good[name]) for name in DOCUMENTS}
    for _ in range(count):
        files = dict(good)
        kind = rng.random()
        if kind < 0.5:
            files["manifest.json"] = spelled(changed(parsed["manifest.json"], rng))
        elif kind < 0.65:  # the copy in the manifest is changed alike
            part = ("constraints", "verdict")[rng.integers(2)]
            document = changed(parsed[f"{part}.json"], rng)
            files[f"{part}.json"] = spelled(document)
            files["manifest.json"] = spelled({**parsed["manifest.json"], part: document})
        elif kind < 0.8:
            name = DOCUMENTS[rng.integers(1, len(DOCUMENTS))]
            files[name] = spelled(changed(parsed[name], rng))
        elif kind < 0.85:
            name = DOCUMENTS[rng.integers(len(DOCUMENTS))]
            files[name] = (
                b"",
                b"{",
                b"[]",
                b"null",
                b'{"a": 1, "a": 2}',
                b"\xff\xfe",
                b"[" * 9999,
            )[rng.integers(7)]
        else:
            files["test_vectors.npz"] = damaged_archive(good["test_vectors.npz"], rng)
        files["checksums.json"] = checksums(files)
        yield files


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_no_resealed_mutant_raises_anything_but_one_line(command, bundle, exported, count):
    rng, refused, before = np.random.default_rng(count), 0, {}
    for files in mutants(exported, rng, count):
        for name, data in files.items():
            if before.get(name) != data:
                (bundle / name).write_bytes(data)
        before = files
        for verb in ("verify", "inspect"):
            code, out, error = command.run(verb, bundle)
            assert code in (0, 2)
            assert error.count("\n") == (1 if code else 0)
            for line in out.splitlines():
                assert line.isprintable(), line
            assert "\nEvery byte is as signed" not in out
        refused += code == 2
    assert refused > count / 3


def resealed(bundle, **documents):
    """Writes documents in place of those of a bundle, and makes its checksums fit again."""
    for name, document in documents.items():
        data = document if isinstance(document, bytes) else spelled(document)
        reseal(bundle, **{name: data})


def manifest_of(bundle):
    return json.loads((bundle / "manifest.json").read_text())


FORGED = "0001\nEvery byte is as signed with your key.\x1b[8m"


@pytest.mark.parametrize(
    "place",
    [
        ("provenance", "run"),
        ("provenance", "policy", "file"),
        ("provenance", "policy", "kind"),
        ("provenance", "fallback", "words"),
        ("provenance", "data_hash"),
        ("programs", "platforms", 0),
        ("parity", "kept_out", 0),
        ("spec", "obs", 0, "name"),
        ("spec", "obs", 2, "unit"),
        ("constraint_words", 0),
        ("guard", "words", 0),
        ("verdict", "sentence"),
    ],
)
def test_no_text_of_a_manifest_forges_or_hides_a_line(command, bundle, place):
    document = manifest_of(bundle)
    parent = document
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = FORGED
    resealed(bundle, manifest__json=document, verdict__json=document["verdict"])
    for name in ("verify", "inspect"):
        out = command(name, bundle)
        assert "\x1b" not in out
        assert not any(line.startswith("Every byte") for line in out.splitlines())
    assert r"\x1b[8m" in out


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("evaluation.json", b"", "evaluation.json is not valid JSON"),
        ("evaluation.json", b'{"a": NaN}', "NaN is not a JSON number"),
        ("evaluation.json", b'{"a": 1, "a": 2}', "a key is repeated"),
        ("evaluation.json", b"[]", "holds no JSON object"),
        ("manifest.json", b'{"a": 1e999}', "1e999 is too large for a floating-point number"),
        ("manifest.json", b'{"a": "\\ud800"}', "is not valid JSON"),
    ],
)
def test_json_that_is_none_is_refused_in_every_file(bundle, name, data, message):
    resealed(bundle, **{name.replace(".", "__"): data})
    with pytest.raises(BundleError, match=message):
        read_bundle(bundle)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document["spec"].update(horizon=HUGE), "1e999 is too large"),
        (lambda document: document["spec"].update(dt=10**400), "OverflowError"),
        (lambda document: document["parity"].pop("kept_out"), "parity with the training side"),
        (lambda document: document["parity"].update(kept_out=[3]), "parity with the training"),
        (lambda document: document["provenance"].pop("data_hash"), "it lacks 'data_hash'"),
        (lambda document: document["provenance"].pop("run"), "it lacks 'run'"),
        (lambda document: document["provenance"].update(run=3), "provenance names no run"),
    ],
)
def test_fields_that_are_printed_must_be_there(bundle, change, message):
    document = manifest_of(bundle)
    change(document)
    resealed(bundle, manifest__json=document)
    with pytest.raises(BundleError, match=message) as error:
        read_bundle(bundle)
    assert "\n" not in str(error.value)


def test_a_bundle_from_before_there_were_other_forms_has_none():
    assert _forms({"platforms": ["cpu"]}) == ()
    with pytest.raises(KeyError, match="without_numpy"):
        _forms({"forms": []})


def test_arrays_without_axes_and_odd_archives_are_refused(bundle, exported):
    arrays = dict(np.load(exported / "test_vectors.npz"))
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, "single_flags": np.uint32(3)})
    resealed(bundle, test_vectors__npz=buffer.getvalue())
    with pytest.raises(BundleError, match="do not match the channels"):
        read_bundle(bundle)
    good = (exported / "test_vectors.npz").read_bytes()
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        local = archive.infolist()[0].header_offset
        central = archive.start_dir
    for offset, value in ((8, 99), (6, 1)):  # an unknown method, and "this is encrypted"
        raw = bytearray(good)
        raw[local + offset] = value
        raw[central + offset + 2] = value
        resealed(bundle, test_vectors__npz=bytes(raw))
        with pytest.raises(BundleError, match="not an archive of plain arrays"):
            read_bundle(bundle)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_put_in_place_after_the_listing_is_not_waited_for(bundle, monkeypatch):
    listed = _files._names

    def raced(path):
        names = listed(path)
        (path / "verdict.json").unlink()
        os.mkfifo(path / "verdict.json")
        return names

    monkeypatch.setattr(_files, "_names", raced)
    outcome = []

    def read():
        with pytest.raises(BundleError, match="is not a plain file"):
            read_bundle(bundle)
        outcome.append("refused")

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(timeout=300)
    assert outcome == ["refused"]


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_a_name_that_no_folder_can_have_is_one_line(command, tmp_path, name):
    assert command.refused("verify", tmp_path / name).count("\n") == 1


def test_a_folder_that_may_not_be_read_is_one_line(command, bundle, monkeypatch):
    """As an unprivileged user meets it; the tests may run as one whom no permission stops."""
    import pathlib

    def denied(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "is_file", denied)
    assert command.refused("verify", bundle).endswith("Permission denied\n")
