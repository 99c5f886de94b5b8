"""The runner of the truth cases serves here too."""

from __future__ import annotations

from tests.truth.conftest import me

__all__ = ["me"]
