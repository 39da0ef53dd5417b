"""The division into daily tests and all others keeps its promises; the rule: `daily_set`."""

import pytest

import daily_set
from workspace_plugin import COLLECTED


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """All tests of the checkout."""
    items = request.config.stash[COLLECTED]
    if not set(request.config.args) >= {"packages", "tests"}:
        pytest.skip("only part of the tests was collected")
    return items


@pytest.fixture
def selected(collected: list[pytest.Item]) -> list[pytest.Item]:
    return daily_set.daily(collected, daily_set.stored(), daily_set.rule())


def test_the_daily_tests_of_every_package_keep_its_budget(selected: list[pytest.Item]) -> None:
    budget = daily_set.rule()["seconds"]
    spent = daily_set.total(selected, daily_set.stored())
    over = {name: round(s, 1) for name, s in spent.items() if s > budget[name]}
    assert not over, (
        f"stored seconds over the budgets {budget}: make tests cheaper, or run `python -m hatch "
        "run tests:record` if they have become cheaper, or lower seconds_per_test"
    )


def test_nothing_is_without_a_daily_test(
    collected: list[pytest.Item], selected: list[pytest.Item]
) -> None:
    concerned = daily_set.subjects(collected)
    assert daily_set.without_daily_test(concerned, []) == list(concerned)
    missing = daily_set.without_daily_test(concerned, selected)
    assert not missing, (
        f"no daily test names {', '.join(missing)}; `python -m hatch run tests:choose` chooses the "
        "cheapest of their tests, where they have one that is not nightly"
    )


def test_every_named_pattern_selects_a_test(collected: list[pytest.Item]) -> None:
    rule = daily_set.rule()
    nothing = {"tests": {}, "setups": {}, "chosen": {}}
    for pattern in rule["always"]:
        one = {"always": [pattern], "seconds_per_test": -1.0}
        assert daily_set.daily(collected, nothing, one), f"{pattern} selects no test"


def test_stored_set_ups_are_those_that_tests_need(collected: list[pytest.Item]) -> None:
    """Under other names they would count as nothing; a few may have been renamed since."""
    needed = {key for item in collected for key in daily_set.setups(item)}
    stored = set(daily_set.stored()["setups"])
    assert len(stored - needed) <= 0.1 * len(stored), "run `python -m hatch run tests:record`"
