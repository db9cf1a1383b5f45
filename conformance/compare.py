"""Distances between recorded arrays. All in float64, whatever the arrays' dtype."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from conformance.contract.bundle import Bundle


def wide(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(np.float64)


def rms(array: np.ndarray) -> float:
    """Root of the mean square; 0 for an empty array."""
    return float(np.sqrt(np.mean(np.square(wide(array))))) if array.size else 0.0


def rms_error(array: np.ndarray, truth: np.ndarray) -> float:
    return rms(wide(array) - wide(truth))


def relative_error(array: np.ndarray, truth: np.ndarray) -> float:
    """|array - truth| / |truth| in the Euclidean norm; 0 when both are 0."""
    size, error = np.linalg.norm(wide(truth)), np.linalg.norm(wide(array) - wide(truth))
    return float(error / size) if size else float(error and np.inf)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = wide(a).ravel(), wide(b).ravel()
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / size) if size else 1.0


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How an array differs from its truth, beside by how much. None where there is no such number.

    times   the factor f by which f x truth is closest to the array (least squares)
    along   cosine of the error with the truth: 1 or -1 where all of the error is that factor, near 0 where none of it is
    spread  share of the rows that the error lies in: 1 where all have as much, 1 / rows where one has it all

    `along` and `spread` stay the same when a fault grows, as long as its effect is linear.
    """

    times: float | None = None
    along: float | None = None
    spread: float | None = None

    @property
    def is_factor(self) -> bool:
        """Whether the error is a factor, more than anything else: `times` says little where it is not."""
        return self.times is not None and (self.along is None or self.along**2 >= 0.5)


@np.errstate(invalid="ignore", over="ignore")
def error_shape(array: np.ndarray, truth: np.ndarray) -> ErrorShape:
    """Rows are those of the first axis. An array with NaN or infinities has no shape, and no warning: its check fails anyway."""
    truth, error = wide(truth), wide(array) - wide(truth)
    product, size = float(np.sum(error * truth)), float(np.sum(truth * truth))
    by_row = np.sum(np.square(error.reshape(len(error), -1)), axis=1) if error.size else np.zeros(1)
    total = float(by_row.sum())
    return ErrorShape(
        times=_ratio(product + size, size),
        along=_ratio(product, np.sqrt(size * total)),
        spread=_ratio(total * total, len(by_row) * float(by_row @ by_row)),
    )


def _ratio(a: float, b: float) -> float | None:
    return float(a / b) if b and np.isfinite(a) and np.isfinite(b) else None


def ulp(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Spacing of `dtype` at the magnitude of `array`, float64, never below that of the smallest normal number."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.floor(np.log2(np.maximum(np.abs(wide(array)), float(info.tiny))))
    return np.exp2(exponent - info.nmant)


def ulp_error(array: np.ndarray, truth: np.ndarray, dtype: np.dtype, at: np.ndarray | None = None) -> float:
    """Largest |array - truth| in units of `dtype`'s spacing at `at` (default: at the truth)."""
    scale = ulp(truth if at is None else at, dtype)
    return float(np.max(np.abs(wide(array) - wide(truth)) / scale))


def running_max(values: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    return np.maximum.accumulate(values, axis=-1)


def real_logits(plan, logits_PTV: np.ndarray) -> np.ndarray:
    """[n,V]: logits at the positions that are not padding; a large model's are recorded so."""
    if logits_PTV.ndim == 2:
        return logits_PTV
    return logits_PTV[plan.probes.attention == 1]


def hidden_mask(plan) -> np.ndarray:
    """bool [P,S]: sampled positions that are not padding."""
    return plan.probes.attention[:, plan.probes.positions] == 1


def layers(bundle: Bundle, key: str, mask_PS: np.ndarray) -> list[np.ndarray]:
    """One [n,H] a layer, padding left out; a large model's are recorded so."""
    stream_PLSH = bundle.array("logits", key)
    if bundle.large:
        return list(stream_PLSH)
    return [stream_PLSH[:, layer][mask_PS] for layer in range(stream_PLSH.shape[1])]
