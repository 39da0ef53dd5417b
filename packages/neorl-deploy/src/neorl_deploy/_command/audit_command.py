"""``verify`` for an audit log: every byte, and every decision if its bundle is named."""

from __future__ import annotations

import re
from pathlib import Path

from neorl_deploy._command.switches import prepare_jax
from neorl_deploy._command.text import one_line
from neorl_deploy._errors import DeployError
from neorl_deploy.audit._chain import NAME, AuditError, verified


def audit_of(path: Path) -> Path | None:
    """The audit log at a path (the log or a loop's folder); ``None`` if the path is neither."""
    for folder in (path, path / "audit"):
        try:
            if any(NAME.fullmatch(one.name) for one in folder.iterdir()):
                return folder
        except (OSError, ValueError):
            continue
    return None


def verify_audit(folder: Path, bundle: Path | None, head: str | None) -> int:
    """Verifies a log and prints the result.

    Args:
        folder: Folder of the log.
        bundle: Bundle whose decisions are recomputed; ``None`` skips this.
        head: Hash of a record that the log must contain.

    Returns:
        The exit code.

    Raises:
        AuditError: If the log was changed, or a recomputed decision differs.
        DeployError: If ``head`` is not a complete hash.
    """
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head):
        raise DeployError(f"--head takes the whole hash of a record (64 digits), got {head!r}")
    chain = verified(folder, head=head)
    files = f"{len(chain.files)} file{'s' * (len(chain.files) != 1)}"
    print(one_line(f"Audit log {folder}: {chain.records} records in {files}"))
    if chain.first:
        print(f"  it begins at record {chain.first}: rotation removed what was before, and says so")
    if bundle is not None:
        prepare_jax()
        from neorl_deploy.audit._replay import replayed
        from neorl_deploy.bundle._read import read_bundle

        result = replayed(folder, read_bundle(bundle))
        if result.differ:
            numbers = ", ".join(map(str, result.differ[:5]))
            raise AuditError(
                f"{folder}: {len(result.differ)} or more of {result.decisions} decisions come out "
                f"otherwise, the first in the records {numbers}; is this the machine that decided?"
            )
        print(f"  {result.decisions} decisions were made again, to the same bits")
    print(f"  head {chain.head}")
    if head is None:
        print("Nothing was changed since it was written. This does not rule out a forger who wrote")
        print("all of it anew: note the head elsewhere, and compare it with --head.")
    else:
        print("Nothing was changed up to the record that you noted, nor after it.")
    return 0
