//! The Kubernetes runtime on a real API server.

pub mod admission_kinds;
pub mod admission_policies;
pub mod admission_samples;
pub mod api_server;
pub mod cloud_logins;
pub mod clusters;
pub mod disappearing;
pub mod guide_roles;
pub mod health;
pub mod health_policy;
pub mod health_rules;
pub mod hostile_scripts;
pub mod keyed_lists;
pub mod rbac;
pub mod replacement;
pub mod shared_crds;
pub mod spec_of_slides;
pub mod waiting_rollouts;
