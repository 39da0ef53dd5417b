from neorl_core.testing import configure_tests


def pytest_configure() -> None:
    # Every example of the table holds three samples, and each function has many laws.
    configure_tests(strict_dtypes=True)
