"""How an array is kept when it is too large to keep in full (DESIGN.md, "kinds").

Every reduction is seeded, and linear or a selection: errors, ratios of errors and cosines are computed from a reduced array just
as from the full one.
"""

import numpy as np

from conformance.contract.draws import philox

SKETCH = 64  # projections of a tensor
LOGIT_POSITIONS = 16  # positions, over all probes, with the full vocabulary
STATE_POSITIONS = 32  # positions, over all probes, with all channels
BLOCK_ROWS, BLOCK_COLUMNS = 64, 256  # of a merged weight and its factors
TOP = 8
CHUNK = 1 << 20  # elements projected at a time: 64 sign rows of it are 64 MiB


def sketch(array: np.ndarray, name: str) -> np.ndarray:
    """float64 [64]: random-sign projections, scaled so that its norm estimates the array's norm (relative sd 9 %).

    Two sketches of one `name` use the same signs: their difference is the sketch of the difference.
    """
    flat, draw = np.asarray(array).ravel(), philox("sketch", 0, name)
    total = np.zeros(SKETCH)
    for start in range(0, flat.size, CHUNK):
        piece = flat[start : start + CHUNK].astype(np.float64)
        total += (2.0 * draw.integers(0, 2, (SKETCH, piece.size), np.int8) - 1) @ piece
    return total / np.sqrt(SKETCH)


def spread(mask: np.ndarray, count: int) -> np.ndarray:
    """`count` positions of a mask, evenly spaced over its true ones: int [count, mask.ndim]."""
    places = np.argwhere(mask)
    return places[np.linspace(0, len(places) - 1, min(count, len(places))).astype(int)]


def sample_logits(logits_PTV: np.ndarray, attention_PT: np.ndarray) -> np.ndarray:
    """[16, V]: full logits at seeded positions that are not padding."""
    places = spread(attention_PT[: len(logits_PTV)] == 1, LOGIT_POSITIONS)
    return logits_PTV[tuple(places.T)]


def summarise_logits(logits_PTV: np.ndarray, ids_PT: np.ndarray) -> np.ndarray:
    """float32 [P, T-1, 2 + 8]: log-probability of the next token, logsumexp, the 8 largest logits."""
    wide = logits_PTV[:, :-1].astype(np.float64)
    most = wide.max(-1, keepdims=True)
    lse = (most + np.log(np.exp(wide - most).sum(-1, keepdims=True)))[..., 0]
    target = np.take_along_axis(wide, ids_PT[: len(wide), 1:, None].astype(np.int64), -1)[..., 0]
    top = -np.sort(-wide, -1)[..., :TOP]
    return np.concatenate([(target - lse)[..., None], lse[..., None], top], -1).astype(np.float32)


def sample_states(states_PLSH: np.ndarray, attention_PS: np.ndarray) -> np.ndarray:
    """[L, 32, H]: all channels at positions that are not padding."""
    places = spread(attention_PS == 1, STATE_POSITIONS)
    return np.moveaxis(states_PLSH[places[:, 0], :, places[:, 1]], 0, 1)


def block(array: np.ndarray, name: str) -> np.ndarray:
    """Seeded rows and columns of a matrix, at most [64, 256]: a merge is judged on the same block of W."""
    rows, columns = block_places(name, *array.shape)
    return array[np.ix_(rows, columns)]


def block_places(name: str, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    draw = philox("block", 0, name)
    chosen = draw.permutation(rows)[:BLOCK_ROWS], draw.permutation(columns)[:BLOCK_COLUMNS]
    return np.sort(chosen[0]), np.sort(chosen[1])


def reduce(kind: str, key: str, value: np.ndarray, probes) -> dict[str, np.ndarray]:
    """`value` in its large-model form, by key; logits bring a summary of every other position along."""
    if kind == "sketch":
        return {key: sketch(value, key.split("/")[-1])}
    if kind == "block":
        return {key: np.ascontiguousarray(block(value, key.split("/")[-1]))}
    if kind == "states":
        return {key: sample_states(value, probes.attention[:, probes.positions])}
    if kind == "logits":
        ids, attention = (probes.long[None], np.ones((1, len(probes.long)))) if "/long/" in key else (probes.ids, probes.attention)
        return {key: sample_logits(value, attention), key + ".elsewhere": summarise_logits(value, ids)}
    return {key: value}


# Dimensions of a reduced array, where they differ from those of the full one.
REDUCED_DIMS = {"sketch": "k", "logits": "kV", "states": "LkH"}
