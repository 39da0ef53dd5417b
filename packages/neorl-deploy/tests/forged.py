"""A bundle as a forger leaves it: changed files, and checksums that fit them again.

The format is written here once more, from its page, so that a change of it shows.
"""

import hashlib
import json

FILES = (
    *("manifest.json", "policy.stablehlo", "initial_carry.stablehlo", "test_vectors.npz"),
    *("constraints.json", "guard.json", "verdict.json", "evaluation.json"),
    *("operations.json", "weights.npz", "policy.onnx"),
)
DESCRIBED = ("spec", "carry", "flags", "limits", "constraints", "constraint_words", "guard")


def canonical(value):
    """Sorted keys, two spaces, a newline at the end."""
    return f"{json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False)}\n".encode()


def checksums(files):
    entries = [
        {"path": name, "size": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
        for name in FILES
        if name in files
    ]
    return canonical({"format": "neorl-bundle-checksums", "version": 1, "files": entries})


def seal(document):
    """What the names of the programs end with: a digest of all that the manifest says of them."""
    described = {name: document[name] for name in DESCRIBED}
    described |= {name: document["provenance"][name] for name in ("policy", "fallback")}
    return hashlib.sha256(canonical(described)).hexdigest()


def reseal(bundle, **changed):
    """Writes files in place of those of a bundle; ``manifest__json`` stands for its name."""
    for name, data in changed.items():
        (bundle / name.replace("__", ".")).write_bytes(data)
    files = {path.name: path.read_bytes() for path in bundle.iterdir()}
    (bundle / "checksums.json").write_bytes(checksums(files))
