"""Traces every row of the table with jaxtyping's checks on; run by ``test_annotations.py``.

The hook must be there before ``neorl_core`` is imported, so this is a process of its own.
"""

import importlib
import importlib.util
import inspect
from pathlib import Path

from jaxtyping import install_import_hook

spec = importlib.util.find_spec("neorl_core")
assert spec is not None
assert spec.origin is not None
ROOT = Path(spec.origin).parent
leaves = [path.relative_to(ROOT).with_suffix("") for path in ROOT.rglob("*.py")]
hooked = [
    ".".join(("neorl_core", *leaf.parts))
    for leaf in leaves
    if leaf.name != "__init__" and leaf.parts[0] != "testing"
]

with install_import_hook(hooked, "beartype.beartype"):
    import hypothesis
    import jax
    from hypothesis import strategies as st

    import neorl_core
    from neorl_core.testing import configure_tests, exports, load_table

    for name in hooked:  # the package itself imports its namespaces when they are used, too late
        importlib.import_module(name)


def is_checked(function) -> bool:
    """Whether the hook wrapped it; of a folder that it does not know it wraps nothing."""
    return hasattr(function, "__wrapped__")


def trace(row) -> None:
    options = row.options
    options = options if isinstance(options, st.SearchStrategy) else st.just(dict(options))

    @hypothesis.settings(max_examples=2)
    @hypothesis.given(row.sample, options)
    def once(sample, options):
        def call(*args):
            return row.function(*args, **options)

        jax.eval_shape(jax.vmap(call), *sample)

    once()


def main() -> None:
    configure_tests(strict_dtypes=True)
    functions = {k: v for k, v in exports(neorl_core).items() if inspect.isfunction(v)}
    unchecked = [name for name, function in functions.items() if not is_checked(function)]
    table, wrong = load_table(Path(__file__).parent), 0
    for row in table:
        try:
            trace(row)
        except Exception as error:
            wrong += 1
            print(f"{row}: {str(error).strip()[:2000]}")
    print(f"{len(table)} rows traced, {wrong} wrong; functions without checks: {unchecked}")
    raise SystemExit(1 if wrong or unchecked or not table else 0)


main()
