"""The time limits of test runs on two quiet cores, and the tests that the quick run leaves out.

| run | aim |
|---|---|
| ``dev.py test --quick`` | 4 minutes, with lint and types: no servers, few cases of long tests, a small simulation |
| ``dev.py test`` | 45 minutes |

1. After the wall-clock budget is used up no test starts, and the run fails.  A run whose last test ends after the
   budget fails too.  The budget is far above the aims, so that slow or busy machines do not fail; each run prints
   its time.
2. Long tests are listed here by name, not measured during a run, so that a run has the same tests everywhere.
3. If a long test has several cases, the quick run takes the first and then every ``CASES_EACH``-th; a long test with
   a single case is left out.
4. ``.durations`` has the time of each test of a run (``durations``); this list was made from such times.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

QUICK_MINUTES = 4
WHOLE_MINUTES = 45
DEFAULT_MINUTES = 70.0
CASES_EACH = 20
QUICK_SCHEDULES = 80
"""Of the simulation's seeds of each kind one in so many."""

LONG: Mapping[str, Sequence[str]] = {
    "audit/repair/index/test_repair.py": [
        "test_a_crash_in_between_is_repeated_away",
        "test_a_flush_of_a_generation_that_the_new_index_cuts_otherwise_changes_nothing",
        "test_a_gap_stops_it_and_a_person_may_end_the_region_there",
        "test_a_flush_is_lost_too",
        "test_damage_that_others_have_copied",
        "test_damaged_versions",
        "test_lost_versions",
        "test_of_a_page_that_cannot_be_read_each_region_is_repaired_by_itself",
    ],
    "audit/repair/test_restored.py": ["test_a_crash_leaves_the_decision_open", "test_after_a_restore"],
    "audit/repair/test_segment.py": [
        "test_a_crash_in_between_is_repeated_away",
        "test_of_open_generations",
        "test_of_sealed_generations",
    ],
    "audit/repair/test_segment_loss.py": ["test_a_crash_in_between_is_repeated_away", "test_of_open_generations"],
    "audit/repair/test_generation.py": ["test_a_flush_is_made_anew_from_its_log"],
    "audit/verify/records/test_wal.py": [
        "test_every_type_in_shares_of_any_size",
        "test_what_could_not_be_compared_is_no_difference",
        "test_what_is_trimmed_is_not_covered",
    ],
    "audit/verify/test_indexes.py": [
        "test_a_sound_table_is_equal_and_says_what_it_looked_at",
        "test_every_type_can_be_asked_for",
        "test_old_values_are_found_and_mended",
        "test_rows_that_an_index_misses",
        "test_what_cannot_be_looked_at_is_named",
    ],
    "audit/verify/test_repaired.py": ["test_so_is_one_of_generations_that_had_ended_before"],
    "benchmarks/test_peers.py": [
        "test_a_peer_that_cannot_be_had_is_named_and_the_others_are_measured",
        "test_a_peer_that_loses_a_row_is_no_peer",
        "test_all_measured_is_exit_code_0",
        "test_arrow_upserts_are_measured_in_turns",
        "test_scans_are_measured_before_and_after_compaction",
    ],
    "core/cli/test_exit_codes.py": ["test_each_branch"],
    "core/cli/test_program.py": [
        "test_a_package_that_cannot_be_imported_breaks_no_other_command_and_is_not_hidden",
        "test_config_show_masks_secrets_and_can_be_read_again",
        "test_logs_are_json_lines_on_stderr",
    ],
    "core/keys/test_code.py": ["test_codes_are_equal_exactly_if_keys_are"],
    "core/region/pages/test_as_single_indexes.py": ["test_a_history_is_the_same"],
    "core/region/pages/test_page_world.py": ["test_without_a_rule_some_seed_notices", "test_histories_keep_the_rules"],
    "core/region/test_state.py": ["test_an_index_comes_back_as_it_was_and_its_bytes_are_stable"],
    "core/rows/test_fold.py": [
        "test_complete_overlays_the_tables_row_or_nulls",
        "test_compose_of_folds_is_the_fold_of_all",
        "test_fold_is_the_dict_wherever_batches_are_cut",
        "test_partial_rows_are_projected_like_batches",
    ],
    "core/rows/test_region_key.py": ["test_all_forms_agree", "test_what_decodes_is_canonical"],
    "core/table/lance/test_deletions.py": ["test_many_small_files_take_no_more_than_they_may"],
    "core/table/lance/test_writing_rows.py": ["test_lance_has_a_thread_for_each_core"],
    "core/wal/test_log.py": ["test_writer_and_claimers_race"],
    "core/wal/test_segment.py": ["TestDamage::test_every_flipped_byte"],
    "demo/test_services.py": ["test_a_command_that_fails_shows_the_end_of_its_log"],
    "deploy/test_chart_rendered.py": ["test_wrong_values_are_refused"],
    "deploy/test_many_regions.py": ["test_a_region_takes_few_bytes", "test_calls_grow_with_regions_and_no_faster"],
    "deploy/test_requests_page.py": ["test_what_each_act_asks_is_what_is_written_down"],
    "faults/test_damage_matrix.py": ["test_a_damaged_object_is_named_and_nothing_wrong_is_read"],
    "faults/test_flipped_bits.py": [
        "test_a_file_with_another_key_is_neither_read_nor_merged",
        "test_merges_of_a_flush",
        "test_reads_of_the_table",
    ],
    "flusher/commands/test_compact.py": [
        "test_a_run_does_what_looking_has_said",
        "test_killed_between_the_writing_and_the_commit",
        "test_wide_rows_take_bounded_memory",
        "test_wide_texts_that_pack_well_take_bounded_memory",
    ],
    "flusher/commands/test_gc.py": [
        "test_a_collector_that_starts_does_what_was_said",
        "test_what_it_says_is_what_goes",
    ],
    "tables/define/test_copies.py": ["test_a_copy_made_at_any_step_of_an_attach_is_another_table"],
    "flusher/garbage/test_collect.py": ["test_generations_of_which_an_old_page_says_otherwise_stay_in_the_index"],
    "tables/load/test_part.py": ["test_random_loads_and_streams", "test_rows_without_a_row_come_in"],
    "flusher/merge/test_conflicts.py": [
        "test_a_compaction_under_way",
        "test_a_follow_up_under_way",
        "test_a_merge_under_way",
        "test_an_index_extension_under_way",
    ],
    "flusher/merge/test_finish.py": ["test_the_next_round_repairs_a_crash_at"],
    "flusher/merge/test_key_types.py": ["test_the_last_operation_of_each_key_wins", "test_upserts_patches_and_deletes"],
    "flusher/merge/test_merge.py": ["test_random_histories", "test_scalar_indexes_stay_right"],
    "flusher/merge/test_origin_conflict.py": [
        "test_random_histories",
        "test_what_was_merged_before_partitions_were_added_may_come_through_another",
    ],
    "flusher/merge/test_set_aside.py": ["test_any_history"],
    "tables/snapshots/test_make.py": [
        "test_it_has_the_rows_of_its_moment_for_plain_lance_and_for_readers",
        "test_one_that_is_cut_short_is_no_snapshot",
    ],
    "tables/snapshots/test_on_s3.py": ["test_a_snapshot_stays_what_it_is"],
    "tables/snapshots/test_page.py": ["test_the_commands_and_programs_of_the_page_run"],
    "tables/snapshots/test_together.py": ["test_all_are_cut_at_what_each_has_durable"],
    "flusher/service/test_compaction_turns.py": ["test_a_worn_fragment_is_written_anew_right_behind_the_merge"],
    "flusher/service/test_round.py": ["test_flushers_and_ingest_at_the_same_time"],
    "flusher/service/test_service.py": [
        "test_a_killed_program_is_continued",
        "test_damage_is_exit_code_4",
        "test_errors_are_one_line_and_an_exit_code",
        "test_once_as_a_program",
        "test_signals_end_it_orderly",
    ],
    "flusher/tasks/test_attempts.py": ["test_any_attempt_of_a_task_may_count"],
    "flusher/tasks/test_spark_session.py": ["test_java_ends_while_it_starts"],
    "flusher/tasks/test_strategies.py": [
        "test_few_patches_are_not_worth_a_look",
        "test_random_strategies",
        "test_two_flushers_at_once",
    ],
    "flusher/upkeep/test_expiry.py": ["test_random_times_merges_and_rounds"],
    "flusher/upkeep/test_index_doubt.py": [
        "test_an_index_built_anew_keeps_its_parameters",
        "test_columns_written_in_place_before",
        "test_one_round_is_bounded_and_the_next_goes_on",
        "test_rows_that_a_user_updated_and_that_kept_their_ids",
        "test_users_updates_without_stable_row_ids_are_new_rows",
        "test_what_cannot_be_written_anew_is_named",
    ],
    "flusher/upkeep/test_index_matrix.py": ["test_every_act_and_upkeep", "test_random_sequences"],
    "flusher/upkeep/test_indexes.py": [
        "test_patches_of_one_fragment_of_many",
        "test_queries_equal_brute_force",
        "test_queries_equal_brute_force_whatever_is_merged",
    ],
    "flusher/upkeep/test_key_runs.py": [
        "test_after_each_round_exactly_the_files_in_use_are_covered",
        "test_merged_runs_find_what_a_scan_finds",
    ],
    "fuzz/test_bounds.py": ["test_json_objects"],
    "fuzz/test_json_objects.py": ["test_damaged_objects", "test_other_values_in_its_members"],
    "fuzz/test_kafka_records.py": [
        "test_a_damaged_record_changes_none_of_its_neighbours",
        "test_any_records",
        "test_large_and_deep_values_cost_what_they_weigh",
    ],
    "fuzz/test_key_index.py": ["test_any_and_damaged_parts"],
    "fuzz/test_region_states.py": [
        "test_damage_is_found",
        "test_damage_under_a_checksum_that_matches",
        "test_other_values_in_its_fields",
    ],
    "fuzz/test_segments.py": [
        "test_a_damaged_table_under_checksums_that_match",
        "test_damaged_objects_are_never_other_rows",
        "test_malformed_arrow_in_a_well_formed_envelope",
    ],
    "fuzz/test_flush_files.py": ["test_any_and_damaged_bytes"],
    "ingest/decode/json/test_json_forms.py": ["test_a_bad_cell_is_rejected_and_its_neighbours_are_not"],
    "ingest/decode/json/test_paths_agree.py": ["test_both_paths_agree", "test_numbers_agree", "test_times_agree"],
    "ingest/service/test_damaged_log.py": [
        "test_a_generation_that_cannot_be_flushed_from_its_log_is_left_to_the_flusher",
        "test_other_partitions_are_opened_and_become_durable",
        "test_what_somebody_puts_in_front_of_a_log_ends_no_process",
    ],
    "ingest/service/test_worker.py": ["test_unflushed_generations_stop_consuming_at_the_budget_until_they_are_flushed"],
    "reader/plan/test_at_least.py": [
        "test_a_dead_letter_is_told_while_its_entry_is_kept",
        "test_each_of_many_records_is_found",
    ],
    "reader/plan/test_at_receipt.py": [
        "test_a_receipt_in_an_open_generation_and_after_it_was_sealed_merged_and_paged",
        "test_any_cut_of_the_records_below_an_early_version",
        "test_clean_ups_and_expired_windows_give_the_rows_or_the_named_error",
        "test_every_receipt_gives_its_rows_again",
    ],
    "reader/plan/test_points_in_time.py": ["test_any_point_gives_what_was_there"],
    "reader/plan/test_two_lost_segments.py": ["test_a_read_at_a_receipt_names_them", "test_they_are_repaired"],
    "reader/spark/test_parts.py": [
        "test_a_pinned_read_does_not_move",
        "test_the_driver_never_holds_the_delta",
    ],
    "reader/test_damage.py": ["test_a_lost_flush_is_read_from_the_log"],
    "reader/test_key_bytes.py": ["test_every_read_is_the_fold_of_what_is_durable"],
    "reader/reading/test_lookup.py": ["test_each_key_has_its_row_in_the_order_asked"],
    "reader/reading/test_lookup_of_tables.py": [
        "test_rows_that_the_key_index_does_not_cover",
        "test_whatever_was_done_to_the_table",
    ],
    "reader/reading/test_rows.py": ["test_rows_that_are_used_again_are_the_same"],
    "reader/reading/test_scan.py": ["test_every_read_is_the_fold_of_what_is_durable"],
    "reader/search/test_any_history.py": ["test_whatever_was_done_to_the_table"],
    "reader/search/test_far_store.py": [
        "test_no_search_writes_an_object",
        "test_of_an_open_table_it_takes_few_rounds_more_than_a_read",
    ],
    "reader/search/test_killed_before_indexing.py": ["test_searches_before_between_and_after"],
    "reader/search/test_text.py": ["test_after_every_act"],
    "reader/search/test_unindexed.py": ["test_one_open_table_finds_the_rows_of_now_after_every_act"],
    "reader/search/test_vectors.py": [
        "test_a_search_at_a_receipt_is_the_same_search",
        "test_after_every_act",
        "test_an_index_is_asked_again_where_the_nearest_are_hidden",
        "test_each_metric_and_many_queries",
        "test_every_nearest_merged_row_is_superseded",
        "test_nothing_is_written",
        "test_the_best_row_is_only_there",
        "test_what_an_index_does_not_show_is_found_without_it",
        "test_what_is_wrong_is_said",
    ],
    "reader/unmerged/test_loaded.py": [
        "test_reads_go_on_through_flushes_that_their_cuts_divide",
        "test_reads_go_on_through_merges_of_some_regions",
    ],
    "simulation/test_accidents.py": ["test_accident"],
    "simulation/test_coverage.py": ["test_nearly_every_branch_of_the_protocol_is_taken"],
    "simulation/test_crash_points.py": ["test_crash_at"],
    "simulation/test_drain.py": ["test_old_then_new"],
    "simulation/test_state_machine.py": ["TestDeployment::runTest"],
    "spark/test_search_on_spark.py": ["test_each_query_finds_its_nearest"],
}
"""Tests whose cases take more than about a second of a processor, together: file below ``tests``, names."""


class Budget:
    """A pytest plugin; ``minutes`` is wall time from the start of the run."""

    def __init__(self, minutes: float, *, quick: bool = False) -> None:
        self.minutes = minutes
        self._aim = QUICK_MINUTES if quick else WHOLE_MINUTES
        self._quick = quick
        self._began = time.monotonic()

    @property
    def exceeded(self) -> bool:
        return time.monotonic() > self._began + self.minutes * 60

    @property
    def _message(self) -> str:
        return f"the test run took more than its budget of {self.minutes:g} minutes (--budget-minutes)"

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._quick:
            kept = left_in([item.nodeid for item in items])
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
            items[:] = [item for item in items if item.nodeid in kept]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if self.exceeded:
            item.session.shouldfail = self._message

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.exceeded and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        took = (time.monotonic() - self._began) / 60
        if self.exceeded:
            terminalreporter.write_line(self._message, red=True)
        elif took > self._aim:
            terminalreporter.write_line(f"{took:.1f} minutes; on two quiet cores {self._aim} are aimed at")


def left_in(names: Sequence[str]) -> set[str]:
    """Of these tests, all in a fixed order, those of the quick run."""
    long = {f"tests/{file}::{name}" for file, tests in LONG.items() for name in tests}
    tests = [name.partition("[")[0] for name in names]
    cases, seen = Counter(tests), Counter[str]()
    kept = set()
    for name, test in zip(names, tests, strict=True):
        if test not in long or (cases[test] > 1 and seen[test] % CASES_EACH == 0):
            kept.add(name)
        seen[test] += 1
    return kept


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budget-minutes",
        type=float,
        default=DEFAULT_MINUTES,
        help=f"fail a run that takes longer than this (default {DEFAULT_MINUTES:g})",
    )
    parser.addoption("--quick", action="store_true", help="few cases of long tests, few schedules of the simulation")
