//! The Terraform runtime on the real executable and a real provider: `hashicorp/local` from a filesystem mirror.
//!
//! Every scenario is written once and run with Terraform and with OpenTofu (`make test-all`).

mod cli_fixture;
mod clouds;
mod failures;
mod interruption;
mod leaks;
mod life_cycle;
mod manual_commands;
mod mixed;
mod outages;
mod packages;
mod partial_plan;
mod plan_json;
mod providers;
mod replacement;
mod review_without_terraform;
mod runtime_fixture;
mod secret_references;
mod sensitive;
mod store_latency;

/// Runs a scenario with both executables.
macro_rules! with_both {
    ($($name:ident: $scenario:path;)*) => {
        mod terraform {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                $scenario(crate::support::terraform::binary()).await;
            })*
        }
        mod opentofu {
            $(#[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs OpenTofu: `make test-all`"]
            async fn $name() {
                $scenario(crate::support::terraform::tofu()).await;
            })*
        }
    };
}

with_both! {
    lives_from_creation_to_destruction: super::life_cycle::from_creation_to_destruction;
    hostile_text_stays_text: super::life_cycle::hostile_text_stays_text;
    references_are_left_to_terraform: super::life_cycle::references_are_left_to_terraform;
    values_of_other_segments_are_known_after_apply: super::life_cycle::values_of_other_segments;
    drift_is_told_from_change: super::life_cycle::drift_is_told_from_change;
    status_says_what_is_gone: super::life_cycle::status_says_what_is_gone;
    a_renamed_resource_moves: super::life_cycle::a_renamed_resource_moves;
    an_existing_object_is_adopted_and_may_be_left_standing: super::life_cycle::adopted_and_left_standing;
    one_bad_item_takes_no_other_down: super::failures::one_bad_item_takes_no_other_down;
    a_failure_in_the_middle_keeps_what_was_made: super::failures::a_failure_in_the_middle;
    what_may_not_run_is_refused_before_init: super::failures::what_may_not_run;
    a_package_with_another_hash_is_refused: super::failures::a_package_with_another_hash;
    an_import_that_fails_takes_no_other_down: super::failures::an_import_that_fails;
    a_too_old_executable_is_refused: super::failures::an_executable_that_is_too_old;
    a_wrong_configuration_of_a_provider_is_said: super::failures::a_provider_that_is_configured_wrongly;
    a_spec_chooses_no_credentials_of_the_machine: super::failures::a_spec_chooses_no_credentials_of_the_machine;
    a_spec_chooses_no_address_of_its_provider: super::failures::a_spec_chooses_no_address_of_its_provider;
    a_spec_chooses_no_identity_of_its_provider: super::failures::a_spec_chooses_no_identity_of_its_provider;
    a_service_that_does_not_answer_is_left: super::failures::a_service_that_does_not_answer;
    packages_are_shared_by_runs_side_by_side: super::packages::shared_by_runs_side_by_side;
    a_damaged_package_is_fetched_again: super::packages::a_damaged_package;
    a_preview_writes_nothing: super::failures::a_preview_writes_nothing;
    a_lost_lease_stops_terraform: super::interruption::a_lost_lease_stops_terraform;
    an_interrupted_apply_ends_what_it_began: super::interruption::an_interrupted_apply;
    a_killed_apply_names_what_was_in_flight: super::interruption::a_killed_apply;
    what_is_complete_is_in_the_store_in_two_seconds: super::store_latency::of_a_killed_run;
    an_interrupted_run_keeps_what_ended: super::store_latency::of_an_interrupted_run;
    a_replacement_that_failed_half_way_is_brought_to_its_end: super::replacement::that_failed_half_way;
    a_killed_replacement_is_brought_to_its_end: super::replacement::that_was_killed;
    a_replacement_whose_state_was_not_written_is_taken_over: super::replacement::whose_state_was_not_written;
    what_a_replacement_takes_along_is_put_back: super::replacement::that_takes_another_along;
    what_an_interrupted_run_made_is_imported: super::interruption::what_was_made_is_imported;
    secrets_are_in_clear_nowhere: super::sensitive::in_clear_nowhere;
    secrets_leave_no_command_and_no_file: super::leaks::nothing_leaves;
    a_secret_of_a_store_reaches_the_provider_alone: super::secret_references::a_value_reaches_the_provider_alone;
    a_secret_stands_where_terraform_keeps_nothing: super::secret_references::a_place_that_terraform_keeps_is_refused;
    another_secret_waits_for_its_version: super::secret_references::another_reference_waits_for_its_version;
    a_crash_of_terraform_tells_no_value: super::leaks::a_crash_tells_no_value;
    what_rules_see_is_what_terraform_shows: super::plan_json::is_that_of_terraform;
    the_cluster_goes_on_without_terraform: super::partial_plan::without_terraform;
    the_cluster_goes_on_without_a_provider: super::partial_plan::without_a_provider;
    the_cluster_goes_on_whatever_a_provider_lacks: super::partial_plan::whatever_a_provider_lacks;
    a_guardrail_stops_the_whole_stack: super::partial_plan::what_stops_the_whole_stack;
    a_mixed_stack_lives_through_the_engine: super::mixed::lives_through_the_engine;
    a_store_that_was_away_has_all_that_was_made: super::outages::a_store_that_comes_back;
    what_can_not_be_stored_is_named: super::outages::what_can_not_be_stored_is_named;
    an_outage_longer_than_the_lease_leaves_a_file: super::outages::an_outage_that_outlives_the_lease;
    a_kill_before_terraform_said_anything_is_told: super::outages::a_kill_before_terraform_said_anything;
    kills_and_outages_make_nothing_twice_in_silence: super::outages::kills_and_outages_at_random_moments;
    what_is_protected_is_not_destroyed: super::manual_commands::what_is_protected_is_not_destroyed;
    what_a_protection_forbids_takes_no_other_down: super::manual_commands::what_a_protection_forbids;
    a_rename_without_its_old_id_is_warned_about: super::manual_commands::a_rename_without_its_old_id;
    guardrails_hold_by_hand: super::manual_commands::guardrails_hold_by_hand;
    stacks_that_no_code_knows_are_destroyed: super::manual_commands::stacks_that_no_code_knows;
    an_imported_state_names_its_objects: super::manual_commands::an_imported_state_names_its_objects;
    a_second_adopter_is_told: super::manual_commands::a_second_adopter_is_told;
    an_error_is_said_once: super::manual_commands::an_error_is_said_once;
    expired_credentials_fail_their_own_resources: super::providers::expired_credentials;
    credentials_that_expire_after_the_plan_fail_their_own_resources: super::providers::credentials_that_expire_after_the_plan;
    expired_credentials_hide_their_own_objects: super::providers::expired_credentials_of_what_is_there;
    a_left_over_object_keeps_its_providers_words: super::providers::a_left_over_object_that_stays;
    what_changes_in_lists_and_blocks_is_shown: super::providers::what_changes_in_lists_and_blocks;
    without_a_key_sensitive_stacks_are_refused: super::sensitive::without_a_key;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewed_change_is_merged_without_terraform() {
    review_without_terraform::merged_without_terraform().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_terraform_the_rest_of_a_stack_is_planned() {
    mixed::without_terraform().await;
}
