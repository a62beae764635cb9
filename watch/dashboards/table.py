"""All boards."""

from __future__ import annotations

from watch.dashboards import flusher, ingest, overview, store
from watch.dashboards.panel import Board

BOARDS: tuple[Board, ...] = (overview.BOARD, ingest.BOARD, flusher.BOARD, store.BOARD)
