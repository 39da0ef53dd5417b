"""Writes the forms of a bundle for controllers beside it, each after its proof."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.forms._c import c_source
from neorl_deploy.forms._form import form_of
from neorl_deploy.forms._plcopen import plcopen_xml
from neorl_deploy.forms._sheet import require_equal, rows_of, test_sheet
from neorl_deploy.forms._structured_text import structured_text
from neorl_deploy.forms._unit import write_unit


def write_forms(bundle: Bundle, kinds: Sequence[str], *, long: bool = False) -> list[Path]:
    """Prints a bundle's guarded step in other languages, with a test sheet beside them.

    Args:
        bundle: A verified bundle with the NumPy form.
        kinds: ``"st"`` for structured text, ``"plcopen"`` for the same block in PLCopen XML,
            ``"c"`` for C, ``"fmu"`` for a co-simulation unit.
        long: Whether to compute in double precision; a unit computes in single.

    Returns:
        The written files, which lie beside the bundle and bear its name.

    Raises:
        NoFormError: If the bundle holds something that cannot be shown equal; nothing is written.
        DeployError: If a file cannot be written.
    """
    form, rows = form_of(bundle), list(rows_of(bundle))
    require_equal(bundle, form, rows)
    files = {}
    if "st" in kinds:
        files[f"{form.name}.st"] = structured_text(form, long=long)
    if "plcopen" in kinds:
        files[f"{form.name}.xml"] = plcopen_xml(form, long=long)
    if "c" in kinds:
        files |= c_source(form, double=long)
    files[f"{form.name}-test-sheet.csv"] = test_sheet(rows)
    written = []
    for name, text in files.items():
        path = bundle.path.with_name(name)
        try:
            path.write_text(text, "utf-8")
        except OSError as error:
            raise DeployError(f"cannot write {path}: {error.strerror}") from error
        written.append(path)
    if "fmu" in kinds:
        written.append(bundle.path.with_name(f"{form.name}.fmu"))
        write_unit(bundle, written[-1])
    return written
