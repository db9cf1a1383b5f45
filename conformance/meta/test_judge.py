"""The judge and the distances: every comparison can fail."""

import ml_dtypes
import numpy as np
import pytest

from conformance.compare import cosine, error_shape, relative_error, rms, running_max, ulp, ulp_error
from conformance.findings import Finding, Verdict, read_findings, rung_verdicts, worst, write_findings
from conformance.judge import Judge, NotEqual


def judge() -> Judge:
    return Judge("tokens", "test_x", "The promise.")


def test_a_check_that_compared_nothing_fails():
    """No measurement is no proof."""
    with pytest.raises(NotEqual, match="compared nothing"):
        judge().conclude()


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (1, 2),
        (1, 1.0),
        (None, np.zeros(1)),
        ([1, 2], [1, 3]),
        ([1], [1, 2]),
        ({1}, {1, 2}),
        (np.zeros(2, np.int32), np.zeros(2, np.int64)),
        (np.zeros(2), np.zeros(3)),
        (np.array([0, 1]), np.array([0, 2])),
        (np.float32(np.nan) * np.ones(1), np.ones(1, np.float32)),
    ],
)
def test_differences_are_seen(got, expected):
    """Value, type, dtype, shape, length and membership all count."""
    one = judge()
    one.same("here", got, expected)
    assert one.finding.verdict is Verdict.FAIL
    assert one.finding.where == "here"


def test_a_set_has_the_same_text_in_every_process():
    """Findings have a digest, and a certificate is verified by another process, whose hashes put a set in another order."""
    names = {f"layer {number}" for number in range(40)}
    judge = Judge("tokens", "test_names", "Names are equal.")
    judge.same("names", names, set(sorted(names, reverse=True)))
    assert judge.finding.got.startswith("{'layer 0', 'layer 1', 'layer 10', 'layer 11'")


@pytest.mark.parametrize(("value", "verdict"), [(1.0, "PASS"), (1.01, "FAIL"), (np.nan, "FAIL"), (np.inf, "FAIL")])
def test_limits_are_kept(value, verdict):
    """At the limit passes, above it and NaN fail."""
    one = judge()
    one.within("here", value, 1.0)
    assert one.finding.verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [(2.0, "PASS"), (1.99, "FAIL"), (0.0, "FAIL"), (np.nan, "FAIL")])
def test_least_values_are_kept(value, verdict):
    """A control that shows less than it must fails, and so does one that shows nothing."""
    one = judge()
    one.above("here", value, 2.0)
    assert one.finding.verdict == verdict


def test_a_zero_limit_is_exact():
    """A limit of 0 (a reference without any error) is passed by 0 alone."""
    one = judge()
    one.within("here", 0.0, 0.0)
    assert one.finding.verdict is Verdict.PASS
    one.within("there", 1e-30, 0.0)
    assert one.finding.verdict is Verdict.FAIL


def test_the_worst_place_is_reported():
    """Of many measurements the finding shows the one with the largest share of its limit."""
    one = judge()
    for where, value, limit in (("a", 5.0, 10.0), ("b", 1.0, 1.25), ("c", 0.0, 0.0)):
        one.within(where, value, limit)
    assert (one.finding.where, one.finding.used_percent, one.finding.compared) == ("b", 80.0, 3)


def test_the_message_says_it_all():
    """What, where, expected, got, share of the limit, and how to go on."""
    one = judge()
    one.within("layer 3", 3.0, 1.5, expected="small", got="large")
    with pytest.raises(NotEqual) as error:
        one.conclude()
    for word in ("The promise.", "layer 3", "200 % of the limit", "small", "large", "parity explain tokens"):
        assert word in str(error.value)


def test_inconclusive_is_not_a_pass():
    """A check that cannot decide says so; a failure stays a failure."""
    one = judge()
    one.within("here", 0.5, 1.0)
    one.inconclusive = "too few"
    assert one.finding.verdict is Verdict.INCONCLUSIVE
    one.within("there", 2.0, 1.0)
    assert one.finding.verdict is Verdict.FAIL


def test_verdicts_of_a_rung():
    """The worst check decides; a rung without checks is not proven."""
    assert worst([Verdict.PASS, Verdict.NOT_PROVEN, Verdict.INCONCLUSIVE]) is Verdict.INCONCLUSIVE
    verdicts = rung_verdicts([Finding("tokens", "x", "p", Verdict.PASS)])
    assert verdicts["tokens"] is Verdict.PASS
    assert verdicts["serving"] is Verdict.NOT_PROVEN


def test_findings_read_back(tmp_path):
    """Saved findings are the findings."""
    findings = [Finding("tokens", "x", "p", Verdict.PASS, measured=0.1, limit=0.3)]
    write_findings(tmp_path / "findings.jsonl", findings)
    assert read_findings(tmp_path / "findings.jsonl") == findings


def test_distances():
    """Worked values."""
    assert rms(np.array([3.0, 4.0])) == pytest.approx(np.sqrt(12.5))
    assert relative_error(np.array([1.1]), np.array([1.0])) == pytest.approx(0.1)
    assert relative_error(np.array([1.0]), np.array([0.0])) == np.inf
    assert cosine(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 0
    assert running_max(np.array([1, 3, 2])).tolist() == [1, 3, 3]


TRUTH = np.array([[1.0, 2.0], [3.0, -4.0]])
ACROSS, MIXED = np.array([[0, 0], [4, 3]]), np.array([[2, -1], [2, 1.5]])


@pytest.mark.parametrize(
    ("array", "times", "along", "spread"),
    [
        (TRUTH * 1.5, 1.5, 1.0, 9 / 13),  # squares of the rows: 5 and 25 parts, 30^2 / (2 (5^2 + 25^2))
        (TRUTH * 0.9, 0.9, -1.0, 9 / 13),
        (TRUTH + ACROSS, 1.0, 0.0, 0.5),  # at right angles, in one row of two
        (TRUTH + MIXED, 1.0, 0.0, 81 / 82),
        (TRUTH, 1.0, None, None),  # no error
    ],
)
def test_the_shape_of_an_error(array, times, along, spread):
    """Its factor, how much of it the factor is, and how many rows it lies in."""
    found = error_shape(array, TRUTH)
    assert (found.times, found.along, found.spread) == pytest.approx((times, along, spread), abs=1e-12)
    assert found.is_factor == (along != 0)


def test_the_shape_stays_when_an_effect_grows():
    """And there is none of nothing, of a truth that is 0, of what is not finite."""
    error = np.array([[1.0, 0.0], [0.5, 1.0]])
    small, large = (error_shape(TRUTH + size * error, TRUTH) for size in (1e-6, 1e-2))
    assert (small.along, small.spread) == pytest.approx((large.along, large.spread), rel=1e-6)
    broken = [(np.full((2, 2), value), TRUTH) for value in (np.inf, np.nan)]
    for array, truth in ((TRUTH[:0], TRUTH[:0]), (error, np.zeros((2, 2))), *broken):
        assert (error_shape(array, truth).times, error_shape(array, truth).is_factor) == (None, False)


def test_ulp_is_the_spacing():
    """numpy's own spacing in float32; 2**-7 at 1 in bfloat16."""
    values = np.array([1.0, 0.75, 3.1, 1e-3, -5.0], np.float32)
    assert ulp(values, np.dtype(np.float32)) == pytest.approx(np.spacing(np.abs(values)).astype(np.float64), rel=0)
    assert ulp(np.array([1.0]), np.dtype(ml_dtypes.bfloat16))[0] == 2**-7
    assert ulp_error(np.array([1 + 2**-7]), np.array([1.0]), np.dtype(ml_dtypes.bfloat16)) == 1
