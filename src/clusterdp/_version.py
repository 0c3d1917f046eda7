"""The version, for those who may import nothing else."""

__version__ = "0.2.0"
