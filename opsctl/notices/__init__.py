"""Telling people of a rollout by webhook: what is said, in which form, and how it gets there."""

from opsctl.notices.courier import Courier, Outcome, named
from opsctl.notices.model import Happening, Notice, Side, body, headline

__all__ = ["Courier", "Happening", "Notice", "Outcome", "Side", "body", "headline", "named"]
