"""Training curves out of bundles: their deviation, their envelope, and what the statistical checks make of runs with dropout."""

import numpy as np

from conformance.compare import rms, running_max
from conformance.contract.bundle import Bundle
from conformance.statistics import Equivalence

CURVES = ("loss", "grad_norm")
RATE_RUN = "rate-"  # a reference run with dropout whose learning rates are this factor times the recipe's


def series(bundle: Bundle, run: str, name: str) -> np.ndarray:
    """float64 [steps]"""
    lines = [line for line in bundle.lines("trajectory", "step") if line["run"] == run]
    return np.asarray([line[name] for line in sorted(lines, key=lambda line: line["step"])], np.float64)


def runs(bundle: Bundle, prefix: str) -> list[str]:
    return sorted(line["run"] for line in bundle.lines("trajectory", "run") if line["run"].startswith(prefix))


def deviation(values: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Relative deviation, [steps]."""
    return np.abs(values / truth - 1)


def envelope(reference: Bundle, name: str, *, plain: bool = True) -> np.ndarray:
    """Running maximum over reference runs of their deviation from the float64 run, [steps]: the perturbed ones, and the plain one.

    The plain run accumulates as the recipe does, the perturbed ones don't: it alone shows what another order of summation does.
    """
    truth = series(reference, "f64", name)
    names = [*runs(reference, "perturbed-"), *(["f32"] if plain else [])]
    errors = [deviation(series(reference, run, name), truth) for run in names]
    return running_max(np.max(errors, axis=0))


def envelope_limit(reference: Bundle, name: str, limits, *, plain: bool = True) -> np.ndarray:
    """Largest allowed deviation, [steps]: the envelope times its factor, never below the rounding of one float32 loss.

    At step 0, with B = 0, all perturbed runs are one run: their spread is a single rounding error.
    """
    return np.maximum(limits["envelope"].value * envelope(reference, name, plain=plain), limits["loss_rounding"].value)


def bf16_limit(reference: Bundle, name: str, limits, steps: int | None = None) -> float:
    """Largest allowed rms deviation of a bfloat16 run from the float32 run, over the first `steps` (None: all)."""
    truth = series(reference, "f32", name)[:steps]
    errors = [rms(deviation(series(reference, run, name)[:steps], truth)) for run in runs(reference, "bf16-")]
    return limits["bf16_trajectory"].value * max(errors)


def margin_of(summary: str, limits) -> float:
    """The equivalence margin of one of the summaries."""
    return limits["tost_margin_" + summary.replace(" ", "_")].value


def tenth(steps: int) -> int:
    """Steps of the last tenth of a run, at least one."""
    return max(1, steps // 10)


def summaries(loss: np.ndarray) -> dict[str, float]:
    """Final loss, mean of the last tenth, area under the curve per step."""
    return {"final loss": loss[-1], "last tenth": loss[-tenth(len(loss)) :].mean(), "area": loss.mean()}


def dropout_pairs(reference: Bundle, port: Bundle) -> list[tuple[np.ndarray, np.ndarray]]:
    """(reference's, port's) losses [steps] of each seed."""
    both = [run for run in runs(reference, "dropout-") if run in runs(port, "dropout-")]
    return [(series(reference, run, "loss"), series(port, run, "loss")) for run in both]


def differences(pairs: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """Summary -> relative differences second / first - 1, one a pair."""
    both = [(summaries(first), summaries(second)) for first, second in pairs]
    return {name: np.asarray([second[name] / first[name] - 1 for first, second in both]) for name in both[0][0]}


def rate_shifts(reference: Bundle) -> tuple[float, dict[str, float]]:
    """(factor of all learning rates in the reference's `rate-` run, summary -> relative difference from the same seed's run)."""
    (run,) = runs(reference, RATE_RUN)
    moved = differences([(series(reference, "dropout-0", "loss"), series(reference, run, "loss"))])
    return float(run.removeprefix(RATE_RUN)), {name: float(one) for name, (one,) in moved.items()}


def rate_slopes(reference: Bundle) -> dict[str, float]:
    """Summary -> change of its logarithm for a change of the learning rates' logarithm."""
    factor, shifts = rate_shifts(reference)
    return {name: float(np.log1p(shift) / np.log(factor)) for name, shift in shifts.items()}


def rejected_rate_error(result: Equivalence, margin: float, slope: float) -> float:
    """Smallest relative error of the learning rate that runs this scattered, and otherwise equal, would be rejected for."""
    room = max(0.0, margin - result.half)
    return float(np.expm1(room / abs(slope))) if slope else float("inf")


def steps_to(loss: np.ndarray, target: float) -> int:
    """Optimizer steps until the mean of a tenth of the run is at most `target`; one more than there are when it never is."""
    window = tenth(len(loss))
    means = np.convolve(loss, np.full(window, 1 / window), mode="valid")
    reached = np.flatnonzero(means <= target)
    return int(reached[0]) + window if len(reached) else len(loss) + 1
