"""The report: one offline HTML file, written by :func:`write_report`."""

from __future__ import annotations

from jumper.report.page.builder import write_report

__all__ = ["write_report"]
