"""Bad input to the port's recorder."""

import pytest

from fixtures.bad_input_tests import *  # noqa: F403  (the tests that both stacks run)
from tpu_impl.__main__ import main


@pytest.fixture
def stack():
    return "port", main
