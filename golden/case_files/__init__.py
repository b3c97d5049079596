"""Files of cases: golden's own cases, and ATB's case files with their tensors."""

from .manifest import read_cases, write_cases

__all__ = ["read_cases", "write_cases"]
