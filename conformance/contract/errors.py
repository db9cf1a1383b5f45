"""The exceptions of the contract."""


class ContractError(ValueError):
    """Bad input to the contract: one sentence that names the value and what is allowed."""


class NotRecorded(ContractError):
    """A value that a bundle says it does not have: what needs it is not proven, neither passed nor failed."""
