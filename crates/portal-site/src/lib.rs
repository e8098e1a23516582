//! Reads the data that the portal shows: the overview from the index alone, a stack from its documents. The crate
//! [`konverge_portal`] makes the pages. Only `served` writes to the store of the states. Nothing sends a request to a
//! cluster or a cloud.

mod branch_config;
mod build;
mod head;
mod overview;
mod permissions;
mod publish;
mod rollouts;
mod seen;
#[cfg(feature = "serve")]
pub mod served;
mod site;
mod stack;

pub use branch_config::{BranchConfig, forge};
pub use build::{BuildReport, build};
pub use head::Head;
pub use overview::trends;
pub use overview::{StackSources, read_overview, recorded_facts};
pub use permissions::permissions;
pub use publish::publish;
pub use rollouts::{read_rollouts, rollout_view, wave_standing};
pub use seen::SeenRecords;
pub use site::{FolderSite, Site, SiteError};
pub use stack::{HistoryRange, StackRead, read_difference, read_stack};
