from neorl_core.testing import configure_tests


def pytest_configure() -> None:
    configure_tests(strict_dtypes=True)
