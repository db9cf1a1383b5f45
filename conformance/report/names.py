"""What things are called in a report."""

from conformance.bench.prices import Price

KINDS = {"at_least": "at least", "equal": "equal to", "at_most": "at most"}
METRICS = {
    "training_time": "training time", "training_cost": "training cost", "ttft_ms": "time to first token",
    "tpot_ms": "time per output token", "output_tokens_per_s": "output tokens/s", "cost_per_token": "cost per output token",
    "total_cost": "cost of training and serving", "pass_at_1": "pass@1",
}  # fmt: skip
QUANTITIES = {"ratio": "", "peak": ", at its peak", "highest_rate": ", highest rate"}


def priced(price: Price | None) -> str:
    """With source and date."""
    return f"${price.usd_per_hour:.2f} an hour, {price.source}, {price.date}" if price else "no price: cost is not known"
