"""What people check a port with today, each as a small version of its published description: given two bundles, caught or not.

They look at what the ladder looks at, recorded by the same recorders, so that only what is compared and how closely differs.
"""

from collections.abc import Callable

import numpy as np

from conformance.compare import real_logits, wide
from conformance.contract.bundle import Bundle

Peer = Callable[[Bundle, Bundle, object], bool]

# The parts of a recording that they read; the last is recorded for them alone and lies over the ladder's merge.
PARTS = ("weights", "logits f32 warm", "trajectory f32", "merge loud", "merge loud logits", "merge in float32")
KL_OF_GEMMA4 = 0.03
KL_STRICTEST = 2e-4
LOSS = 0.01
MERGED_ATOL, RTOL = 1e-2, 1e-7


def kl_per_token(golden_NV: np.ndarray, model_NV: np.ndarray) -> np.ndarray:
    """[N] sum over the vocabulary of p_golden (log p_golden - log p_model), in float64."""
    golden, model = (_log_softmax(wide(logits)) for logits in (golden_NV, model_NV))
    return np.sum(np.exp(golden) * (golden - model), -1)


def _log_softmax(logits_NV: np.ndarray) -> np.ndarray:
    shifted = logits_NV - logits_NV.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def logit_check(reference: Bundle, port: Bundle, plan, limit: float = KL_OF_GEMMA4) -> bool:
    """MaxText's logit check: the largest KL divergence of a single token is under a limit, in float32.

    AI-Hypercomputer/maxtext, tests/utils/forward_pass_logit_checker.py (check_kl_divergence, --max_kl_div). 0.03 is what
    tests/end_to_end/tpu/gemma4/Run_Gemma4.md gives for Gemma 4. Here on the adapted model, which is more than they check.
    """
    golden, model = (real_logits(plan, bundle.array("logits", "f32/warm/logits")) for bundle in (reference, port))
    return golden.shape != model.shape or not kl_per_token(golden, model).max() < limit


def strict_logit_check(reference: Bundle, port: Bundle, plan) -> bool:
    """The same under the smallest limit found in MaxText: 2e-4, tests/end_to_end/tpu/deepseek/Run_DeepSeek.md, float32."""
    return logit_check(reference, port, plan, KL_STRICTEST)


def keys_and_shapes(reference: Bundle, port: Bundle, plan) -> bool:
    """Names and shapes of loaded weights, adapter tensors and the merged checkpoint's tensors are the reference's."""
    return _shapes(reference) != _shapes(port)


def _shapes(bundle: Bundle) -> dict[str, tuple]:
    adapter = {f"adapter/{name}": value.shape for name, value in bundle.arrays("trajectory", "f32/final/").items()}
    merged = {f"merged/{x['name']}": tuple(x["shape"]) for x in bundle.lines("merge", "tensors") if x["adapter"] == "loud"}
    return {x["name"]: tuple(x["shape"]) for x in bundle.lines("weights", "tensors")} | adapter | merged


def final_loss(reference: Bundle, port: Bundle, plan) -> bool:
    """The loss of the run's last step is within 1 % of the reference's: what a loss curve shows to the eye."""
    mine, theirs = (bundle_losses(bundle)[-1] for bundle in (port, reference))
    return not abs(mine - theirs) <= LOSS * abs(theirs)


def bundle_losses(bundle: Bundle) -> list[float]:
    """The float32 run's losses, step by step."""
    lines = [line for line in bundle.lines("trajectory", "step") if line["run"] == "f32"]
    return [line["loss"] for line in sorted(lines, key=lambda line: line["step"])]


def merged_against_unmerged(reference: Bundle, port: Bundle, plan) -> bool:
    """Tunix's LoRA test: logits of the adapted and the merged, reloaded model, np.testing.assert_allclose with atol 1e-2.

    google/tunix, tests/models/_lora_params_test_base.py (test_forward_pass_equivalence). It compares the port with itself;
    There as here base and merge are float32 (in bfloat16 rounding alone is 0.45); A and B are random there, here the loud adapter.
    """
    adapted, merged = (real_logits(plan, port.array("merge", f"loud/{state}/logits")) for state in ("unmerged", "merged"))
    return not np.allclose(adapted, merged, rtol=RTOL, atol=MERGED_ATOL)


MERGE_PEER = "merged = unmerged"
PEERS: dict[str, Peer] = {
    "logits, KL < 0.03": logit_check,
    "logits, KL < 2e-4": strict_logit_check,
    "keys and shapes": keys_and_shapes,
    "final loss 1 %": final_loss,
    MERGE_PEER: merged_against_unmerged,
}


def caught_by(reference: Bundle, port: Bundle, plan) -> dict[str, bool]:
    return {name: peer(reference, port, plan) for name, peer in PEERS.items()}
