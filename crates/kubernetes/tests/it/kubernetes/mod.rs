//! The Kubernetes runtime on a real API server.

pub mod blocking_fields;
pub mod characters;
pub mod controller_values;
pub mod custom_resources;
pub mod definitions;
pub mod dependent_changes;
pub mod faults;
pub mod health_failures;
pub mod health_published;
pub mod hooks;
pub mod preview_fidelity;
pub mod refusals;
pub mod regressions;
pub mod request_counts;
pub mod rollout_states;
pub mod rollouts;
pub mod schema;
pub mod shape_pairs;
pub mod three_way;
pub mod volume_expansion;
pub mod watches;
pub mod webhooks;
pub mod write_conflicts;
