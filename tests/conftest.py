"""What every folder of tests shares."""

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Let fixtures know how their test went: `item.rep_call`."""
    outcome = yield
    report = outcome.get_result()
    setattr(item, f"rep_{report.when}", report)
