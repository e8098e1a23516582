//! The modules `service`, `job` and `network` of Kusion's own organization, by the rules of their published versions.

mod call;
mod containers;
mod env;
mod files;
mod job;
mod network;
mod network_settings;
mod probes;
mod service;
mod workload;

pub(super) use call::{EnvOrder, ModuleCall, ModuleOutput};
pub(super) use job::generate as generate_job;
pub(super) use network::generate as generate_network;
pub(super) use service::generate as generate_service;
