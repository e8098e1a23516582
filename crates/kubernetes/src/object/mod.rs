//! Objects of the cluster: their names, how they are read, their fields and managers, and their records.

pub(super) mod blocking_fields;
pub(super) mod completed_jobs;
pub(super) mod controller_values;
pub(super) mod crd_validation;
pub(super) mod drift_author;
pub(super) mod fetch;
pub(super) mod field_leftovers;
pub(super) mod field_ownership;
pub(super) mod managed_fields;
pub(super) mod noop_detection;
pub(super) mod object_diff;
pub(super) mod object_record;
pub(super) mod object_ref;
pub(super) mod plan_item;
pub(super) mod precondition;
pub(super) mod refused_fields;
pub(super) mod related_fetch;
pub(super) mod secret_references;
pub(super) mod server_field;
pub(super) mod server_merge;
pub(super) mod volume_expansion;
