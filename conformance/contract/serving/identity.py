"""Is the merged checkpoint what is served? By the digests of its files, and by the server's own answers."""

from pathlib import Path

import numpy as np

from conformance.contract.bundle import Bundle
from conformance.contract.choices import FOLDERS
from conformance.contract.errors import ContractError
from conformance.contract.kinds import summarise_logits
from conformance.contract.plan import Plan
from conformance.contract.serving.api import Api, Reply, padded

MERGED = FOLDERS["trained"][1]
# Allowed distance from the merged model, in units of what bfloat16 does to the base's log-probabilities in the stack that recorded.
# Measured on the tiny recipe: float32 server 4e-5 of it, adapters unmerged 1.6 to 1.8, the base 42 to 47.
ROUNDING = {"float32": 1 / 16, "bfloat16": 1.5}
NEARER = 4.0  # with a KV cache of another dtype than the model: so many times nearer to the merged model than the base is


def check_weights(bundle: Bundle, weights: dict[str, str]) -> None:
    """The files are those of the bundle's merge, and not those that it started from."""
    if weights == bundle.manifest["checkpoint_sha256"]:
        raise ContractError(f"checkpoint: its weights are the base's, by sha256; the merged ones are {bundle.path / MERGED}")
    expected = merged_digests(bundle)
    wrong = [name for name in sorted(expected | weights) if weights.get(name) != expected.get(name)]
    if wrong:
        raise ContractError(f"checkpoint: {wrong[0]} is not the file that bundle {bundle.path} recorded as {MERGED}/ (sha256 differs)")


def merged_digests(bundle: Bundle) -> dict[str, str]:
    """File -> sha256 of the merge's shards, as the bundle recorded them."""
    paths = {Path(name): digest for name, digest in bundle.manifest["files"].items()}
    return {path.name: digest for path, digest in paths.items() if path.parent == Path(MERGED) and path.suffix == ".safetensors"}


def check_answers(api: Api, bundle: Bundle, plan: Plan, *, dtype: str, kv_dtype: str) -> str:
    """Refuses a server whose log-probabilities of the probes are not near the merged model's; returns what was measured."""
    found = probe_logprobs(ask_probes(api, plan), plan)
    merged = recorded_logprobs(bundle, plan, "merge", "trained/merged/logits")
    base = recorded_logprobs(bundle, plan, "logits", "f32/base/logits")
    rounded = recorded_logprobs(bundle, plan, "logits", "bf16/base/logits")
    off, apart, rounding = (_rms(distance, plan) for distance in (found - merged, base - merged, rounded - base))
    allowed = ROUNDING[dtype] * rounding if kv_dtype in ("auto", dtype) else apart / NEARER
    measured = (
        f"rms distance of the probes' log-probabilities from the merged model: {off:.3g} (allowed {allowed:.3g}; "
        f"from the merged model to the base: {apart:.3g})"
    )
    if not off <= allowed:
        raise ContractError(f"server: it does not answer as the merged checkpoint does: {measured}")
    return measured


def ask_probes(api: Api, plan: Plan) -> list[Reply]:
    """All probes at the same time, without their padding; one new token, since none is not allowed."""
    return api.together(lambda ids: api.complete(ids, 1), real_probes(plan))


def real_probes(plan: Plan) -> list[np.ndarray]:
    return [ids[attended == 1] for ids, attended in zip(plan.probes.ids, plan.probes.attention, strict=True)]


def probe_logprobs(replies: list[Reply], plan: Plan) -> np.ndarray:
    """float32 [P,T]: log-probability of each token after those before it; 0 for the first and for padding.

    Of a prompt that the server made longer, the first T: that it did is said by its own count.
    """
    width = plan.probes.ids.shape[1]
    return padded([[0.0, *reply.prompt_logprobs][:width] for reply in replies], width, 0, np.float32)


def recorded_logprobs(bundle: Bundle, plan: Plan, rung: str, key: str) -> np.ndarray:
    """The same of logits that a stack recorded."""
    if bundle.large:
        logprobs = bundle.array(rung, f"{key}.elsewhere")[..., 0]
    else:
        logprobs = summarise_logits(bundle.array(rung, key), plan.probes.ids)[..., 0]
    return np.where(plan.probes.attention == 1, np.pad(logprobs, ((0, 0), (1, 0))), 0).astype(np.float32)


def _rms(difference_PT: np.ndarray, plan: Plan) -> float:
    return float(np.sqrt(np.mean(np.square(difference_PT[:, 1:][plan.probes.attention[:, 1:] == 1], dtype=np.float64))))
