from neorl_core.testing import climate


def pytest_configure() -> None:
    climate(strict_dtypes=True)
