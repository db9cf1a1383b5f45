"""The one exception of the contract."""


class ContractError(ValueError):
    """Bad input to the contract: one sentence that names the value and what is allowed."""
