"""Bad input to the reference's recorder."""

import pytest

from fixtures.bad_input_tests import *  # noqa: F403  (the tests that both stacks run)
from reference.__main__ import main


@pytest.fixture
def stack():
    return "reference", main
