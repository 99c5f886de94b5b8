"""What is stored, declared once: columns of samples, the tasks table, the segment format.

Standard library only: collectors on nodes, readers and documents all import it.
"""

from __future__ import annotations

from jumper.schema.columns import COLUMNS, DERIVED, DEVICE_COLUMNS, STREAMS, Column, declared, stored_columns
from jumper.schema.tasks import FLAGS, PART_COLUMNS, TASK_COLUMNS, TaskColumn

VERSION = "0.1.0"
#: Version of the run directory (run.json, tables). Readers refuse a newer major one.
RUN_SCHEMA = 1

__all__ = [
    "COLUMNS",
    "DERIVED",
    "DEVICE_COLUMNS",
    "FLAGS",
    "PART_COLUMNS",
    "RUN_SCHEMA",
    "STREAMS",
    "TASK_COLUMNS",
    "VERSION",
    "Column",
    "TaskColumn",
    "declared",
    "stored_columns",
]
