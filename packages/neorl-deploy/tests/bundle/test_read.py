"""A changed byte anywhere, and every other kind of tampering, is refused before anything runs."""

import json
import os
import re
import shutil

import numpy as np
import pytest

from neorl_deploy import BundleError
from neorl_deploy.bundle import read_bundle

from ..forged import canonical, reseal


def change_manifest(bundle, *path, value):
    document = json.loads((bundle / "manifest.json").read_text())
    at = document
    for step in path[:-1]:
        at = at[step]
    if value is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    (bundle / "manifest.json").write_bytes(canonical(document))
    reseal(bundle)


def positions(size: int) -> list[int]:
    """Both ends and a spread between; every byte of a small file."""
    if size <= 1500:
        return list(range(size))
    return sorted({0, 1, size - 2, size - 1, *np.linspace(0, size - 1, 80).astype(int).tolist()})


def test_a_changed_bit_of_any_file_is_refused(bundle):
    flips = 0
    for path in sorted(bundle.iterdir()):
        data = path.read_bytes()
        for position in positions(len(data)):
            changed = bytearray(data)
            changed[position] ^= 1 << (position % 8)
            path.write_bytes(changed)
            with pytest.raises(BundleError, match=path.name):
                read_bundle(bundle)
            flips += 1
        path.write_bytes(data)
    assert flips > 1000
    read_bundle(bundle)


def test_upper_case_digits_and_other_spellings_of_the_checksums_are_refused(bundle):
    path = bundle / "checksums.json"
    text = path.read_text()
    for other in (text.replace("a", "A"), text.replace("\n", "\r\n"), text + " ", text.strip()):
        path.write_text(other, newline="")
        with pytest.raises(BundleError, match=r"checksums\.json"):
            read_bundle(bundle)


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_truncated_or_extended_file_is_refused(bundle, length):
    for path in sorted(bundle.iterdir()):
        data = path.read_bytes()
        path.write_bytes(data + b"\0" if length == -1 else data[: min(length, len(data) - 1)])
        with pytest.raises(BundleError, match=path.name):
            read_bundle(bundle)
        path.write_bytes(data)


def test_a_missing_or_renamed_file_is_refused(bundle):
    for path in sorted(bundle.iterdir()):
        aside = path.rename(bundle.parent / path.name)
        with pytest.raises(BundleError, match=f"no {path.name}"):
            read_bundle(bundle)
        aside.rename(bundle / f"{path.name}.bak")
        with pytest.raises(BundleError, match=r"not part of a bundle"):
            read_bundle(bundle)
        (bundle / f"{path.name}.bak").rename(path)


def test_exchanged_files_are_refused(bundle):
    step, start = bundle / "policy.stablehlo", bundle / "initial_carry.stablehlo"
    data = step.read_bytes()
    step.write_bytes(start.read_bytes())
    start.write_bytes(data)
    with pytest.raises(BundleError, match="stablehlo"):
        read_bundle(bundle)


def test_an_extra_file_link_or_folder_is_refused(bundle):
    (bundle / "notes.txt").write_text("hello")
    with pytest.raises(BundleError, match=r"'notes\.txt', which is not part"):
        read_bundle(bundle)
    (bundle / "notes.txt").unlink()
    (bundle / "deeper").mkdir()
    with pytest.raises(BundleError, match="'deeper' is a link or no plain file"):
        read_bundle(bundle)
    (bundle / "deeper").rmdir()
    for name in ("test_vectors.npz", "checksums.json"):
        aside = (bundle / name).rename(bundle.parent / name)
        (bundle / name).symlink_to(aside)
        with pytest.raises(BundleError, match=f"'{name}' is a link"):
            read_bundle(bundle)
        (bundle / name).unlink()
        aside.rename(bundle / name)
    read_bundle(bundle)


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(bundle):
    (bundle / "test_vectors.npz").unlink()
    os.mkfifo(bundle / "test_vectors.npz")
    with pytest.raises(BundleError, match="no plain file"):
        read_bundle(bundle)


def test_an_oversized_file_is_refused_unread(bundle):
    with open(bundle / "manifest.json", "r+b") as file:
        file.truncate(4 * 2**20 + 1)
    with pytest.raises(BundleError, match="at most"):
        read_bundle(bundle)


def test_names_that_leave_the_bundle_are_refused(bundle):
    """The list names what lies in the directory and nothing else, whatever it claims."""
    for name in ("../manifest.json", "/etc/passwd", "..\\manifest.json", "a\0b"):
        document = json.loads((bundle / "checksums.json").read_text())
        document["files"][0]["path"] = name
        (bundle / "checksums.json").write_bytes(canonical(document))
        with pytest.raises(BundleError, match="changed"):
            read_bundle(bundle)


def test_what_is_no_bundle_is_refused(tmp_path, exported):
    with pytest.raises(BundleError, match="does not exist"):
        read_bundle(tmp_path / "none.bundle")
    (tmp_path / "file.bundle").write_text("")
    with pytest.raises(BundleError, match="is a file; a bundle is a directory"):
        read_bundle(tmp_path / "file.bundle")
    (tmp_path / "empty.bundle").mkdir()
    with pytest.raises(BundleError, match="no checksums"):
        read_bundle(tmp_path / "empty.bundle")
    shutil.copytree(exported, tmp_path / "copied.bundle")
    assert read_bundle(tmp_path / "copied.bundle").digest == read_bundle(exported).digest


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "version 2 of neorl-bundle, this neorl-deploy reads 1"),
        (("version",), True, "version True of neorl-bundle"),
        (("format",), "other", "has format 'other', expected 'neorl-bundle'"),
        (("carry",), KeyError, "the fields carry are missing"),
        (("surplus",), 1, "the fields surplus are missing or unknown"),
        (("spec", "obs"), [], "channels are missing"),
        (("spec", "obs", 0, "low"), 5.0, "'level' has an invalid range"),
        (("spec", "dt"), 0, "dt must be a number of seconds above zero"),
        (("verdict", "answer"), "perhaps", "'perhaps' is none of"),
        (("flags", "fallback_used"), 3, "not one bit"),
        (("carry", 0, "shape"), [-1], "has shape"),
        (("carry", 0), "x", "malformed"),
        (("parity",), None, "parity with the training side"),
        (("parity", "worst"), 1e-3, "parity with the training side"),
        (("constraint_words",), "none", "constraint_words must be a list of sentences"),
        (("constraint_words",), [1], "constraint_words must be a list of sentences"),
        (("provenance", "fallback", "words"), 1, "does not say what the fallback is"),
        (("provenance", "policy"), {}, "is malformed: it lacks"),
        (("signature",), {"algorithm": "none", "public_key": ""}, "unknown kind"),
        (("constraints", "version"), 9, "manifest and constraints.json disagree"),
        (("verdict", "candidate"), "x", "manifest and verdict.json disagree"),
    ],
)
def test_a_resealed_manifest_must_still_make_sense(bundle, path, value, message):
    change_manifest(bundle, *path, value=value)
    with pytest.raises(BundleError, match=message):
        read_bundle(bundle)


def clause(bound, holds, limit=0.0, relation=">"):
    return {
        "name": "return",
        "bound": bound,
        "relation": relation,
        "limit": limit,
        "holds": holds,
    }


HOLDS, FAILS = clause(1.0, True), clause(-1.0, False)
CONTRADICTORY = [
    ("deploy", [HOLDS, FAILS], "is 'deploy' and its clause 'return' does not hold"),
    ("deploy", [], "is 'deploy' and no clause says why"),
    ("do not deploy", [HOLDS], "'do not deploy' and every clause holds"),
    ("do not deploy", [], "'do not deploy' and no clause says why"),
    ("deploy", [clause(-1.0, True)], "holds = True, and -1 > 0 says otherwise"),
    ("deploy", [clause(9.0, True, 5.0, "<=")], "holds = True, and 9 <= 5 says otherwise"),
    ("deploy", [clause(None, True)], "holds = True, and nan > 0 says otherwise"),
    ("deploy", [clause("-inf", True)], "holds = True, and -inf > 0 says otherwise"),
    ("do not deploy", [clause(1.0, False)], "holds = False, and 1 > 0 says otherwise"),
    ("cannot tell", [clause(1.0, False)], "holds = False, and 1 > 0 says otherwise"),
    ("deploy", [clause("1.0", True)], "compares '1.0', which is not a number"),
    ("deploy", [clause(True, True)], "compares True, which is not a number"),
    ("deploy", [clause(1.0, True, 0.0, ">=")], "says '>=' and holds = True; expected one of >, <="),
    ("deploy", [clause(1.0, 1)], "says '>' and holds = 1; expected"),
    ("deploy", [{"holds": True}], "its clause 1 is not an object with a name"),
    ("deploy", [HOLDS, 3], "its clause 2 is not an object with a name"),
    ("deploy", None, "its clauses are None, expected a list"),
]


@pytest.mark.parametrize(("answer", "clauses", "message"), CONTRADICTORY)
def test_a_forged_verdict_that_contradicts_itself_is_refused(bundle, answer, clauses, message):
    forge_verdict(bundle, answer, clauses)
    with pytest.raises(BundleError, match=re.escape(message)) as error:
        read_bundle(bundle)
    assert "\n" not in str(error.value)


def forge_verdict(bundle, answer, clauses, sentence="Any words."):
    verdict = json.loads((bundle / "verdict.json").read_text())
    verdict |= {"answer": answer, "sentence": sentence, "clauses": clauses}
    (bundle / "verdict.json").write_bytes(canonical(verdict))
    change_manifest(bundle, "verdict", value=verdict)


@pytest.mark.parametrize(
    ("answer", "clauses"),
    [
        ("deploy", [HOLDS, clause(5.0, True, 5.0, "<=")]),
        ("deploy", [clause("inf", True), clause(10**400, True)]),
        ("do not deploy", [HOLDS, clause(None, False, 5.0, "<=")]),
        ("cannot tell", []),
        ("cannot tell", [HOLDS, FAILS]),
    ],
)
@pytest.mark.parametrize("sentence", ["It may be deployed.", "It should not be deployed."])
def test_a_verdict_is_told_by_answer_and_clauses_whatever_its_words(
    bundle, answer, clauses, sentence
):
    forge_verdict(bundle, answer, clauses, sentence)
    assert read_bundle(bundle).manifest.verdict == answer


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff\xfe", b"[" * 10_000]
)
def test_a_resealed_manifest_that_is_no_strict_json_is_refused(bundle, text):
    (bundle / "manifest.json").write_bytes(text)
    reseal(bundle)
    with pytest.raises(BundleError, match=r"manifest\.json"):
        read_bundle(bundle)


def test_resealed_test_vectors_must_be_plain_arrays_that_fit(bundle, exported):
    arrays = dict(np.load(exported / "test_vectors.npz"))
    cases = {
        "not an archive": b"not a zip",
        "test vectors .single. do not match": {**arrays, "single_obs": arrays["single_obs"][:, :2]},
        "expected": {"single_obs": arrays["single_obs"]},
        "not an archive of plain arrays": {**arrays, "single_obs": np.array([{}], dtype=object)},
    }
    for message, content in cases.items():
        if isinstance(content, bytes):
            (bundle / "test_vectors.npz").write_bytes(content)
        else:
            with open(bundle / "test_vectors.npz", "wb") as file:
                np.savez(file, **content)
        reseal(bundle)
        with pytest.raises(BundleError, match=message):
            read_bundle(bundle)


def test_test_vectors_that_would_unpack_to_gigabytes_are_refused(bundle):
    with open(bundle / "test_vectors.npz", "wb") as file:
        np.savez_compressed(file, single_obs=np.zeros(20_000_000, np.float32))
    reseal(bundle)
    with pytest.raises(BundleError, match="would unpack to more than"):
        read_bundle(bundle)
