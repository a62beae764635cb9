"""Make the limits of merges and compaction from the settings."""

from __future__ import annotations

from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import FlusherSettings
from lancewal_core.table.contract import Contract
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits


def compaction_limits(settings: FlusherSettings) -> CompactionLimits:
    """Return the limits of a round of compaction in the service."""
    return CompactionLimits(
        target_rows=settings.compaction_target_rows,
        target_bytes=settings.compaction_target_bytes,
        deleted_share=settings.compaction_deleted_ratio,
        round_bytes=settings.compaction_round_bytes_max,
        groups_max=settings.compaction_groups_max if settings.runner == "spark" else 1,
    )


def merge_limits(settings: Settings, contract: Contract) -> MergeLimits:
    """Return the limits of merges in the service."""
    return MergeLimits(
        defer_s=min(settings.flusher.merge_defer_s, contract.freshness_target_s),
        deleted_share=settings.flusher.compaction_deleted_ratio,
        memory_bytes=settings.flusher.merge_memory_bytes_max,
    )
