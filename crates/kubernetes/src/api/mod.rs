//! The API server: credentials, requests, kinds, clusters, watches.

pub(super) mod admission_parameters;
pub(super) mod apply_body;
pub(super) mod client;
pub(super) mod cluster;
pub(super) mod cluster_identity;
pub(super) mod cluster_login;
pub(super) mod clusters;
pub(super) mod conflict_path;
pub(super) mod connect;
pub(super) mod discovery;
pub(super) mod error;
pub(super) mod error_classify;
pub(super) mod json_ref;
pub(super) mod kubeconfig;
pub(super) mod list_page;
pub(super) mod mutating_admission;
pub(super) mod noop_guard;
pub(super) mod openapi;
pub(super) mod options;
pub(super) mod transport;
pub(super) mod watches;
