"""Programs from torch modules."""
from __future__ import annotations
