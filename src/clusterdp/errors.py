"""Errors a user can act on. Messages echo parameters and public labels, never outcomes or ids."""


class ClusterDPError(ValueError):
    """Base of every error this package raises on purpose."""


class ParameterError(ClusterDPError):
    """A parameter is out of its range, or parameters contradict each other."""


class DataError(ClusterDPError):
    """The table breaks a rule; the message names the column and how many rows broke it."""


class OwnerNotice(UserWarning):
    """Something only the data owner may know, such as how many rows were clipped.

    It is shown once and stored nowhere, because it is a function of the sensitive outcomes.
    """


class OutputError(ClusterDPError):
    """A folder cannot be written where it was asked for."""


class FormatError(ClusterDPError):
    """A folder is not a release, was damaged or edited, or is of a newer format."""


class LedgerError(ClusterDPError):
    """A budget does not allow it, or its ledger cannot be read or was edited."""
