"""The runner of the truth cases serves here too."""

from __future__ import annotations

from tests.truth.conftest import me, runner

__all__ = ["me", "runner"]
