"""What becomes of a check that asks for what a partial rung does not have."""

from types import SimpleNamespace

import pluggy
import pytest

from conformance.contract.errors import ContractError, NotRecorded
from conformance.judge import Judge, NotEqual
from conformance.ladder import JUDGE, pytest_pyfunc_call


def end_of(error: Exception, *measured: int) -> BaseException:
    """The exception that a check ends with when its body raises `error` after these values, 1 being right."""
    judge = Judge("logits", "test_x", "The promise.")
    for value in measured:
        judge.same("here", value, 1)

    def body():
        raise error

    item = SimpleNamespace(stash={JUDGE: judge}, config=SimpleNamespace(ladder=SimpleNamespace(findings=[])))
    outcome, wrapper = pluggy.Result.from_call(body), pytest_pyfunc_call(item)
    next(wrapper)
    with pytest.raises(StopIteration):
        wrapper.send(outcome)
    return outcome.exception


@pytest.mark.parametrize("measured", [(), (1,), (1, 1)])
def test_what_is_not_recorded_is_not_proven(measured):
    """With nothing measured, and with a part of the promise seen to hold: that is no proof of the whole."""
    end = end_of(NotRecorded("no bf16"), *measured)
    assert isinstance(end, pytest.skip.Exception) and str(end) == "no bf16"


def test_a_difference_that_was_measured_stays_a_failure():
    """A gap behind it excuses nothing."""
    assert isinstance(end_of(NotRecorded("no bf16"), 1, 2), NotEqual)


def test_any_other_error_breaks_the_check():
    """Control: only what the bundle itself says it has not is excused."""
    assert type(end_of(ContractError("no array"), 1)) is ContractError
