"""By day the reports of runs have empty pictures, which would take as long as the runs."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _empty_pictures(pytestconfig):
    with pytest.MonkeyPatch.context() as patch:
        if not pytestconfig.getoption("--nightly"):
            drawn = "neorl_train.report.figures._style.drawn"
            patch.setattr(drawn, lambda *_, **__: "<svg></svg>")
        yield
