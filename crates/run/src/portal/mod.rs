//! What the portal shows, read from the store: the overview from the index alone, a stack from its documents. Nothing
//! here writes to the store of the states, and nothing asks a cluster or a cloud.

mod build;
mod head;
mod overview;
mod publish;
mod site;
mod stack;
mod views;

pub use build::{BuildReport, build};
pub use head::Head;
pub use overview::{StackSources, read_overview, recorded_facts};
pub use publish::{SiteStore, publish};
pub use site::{FolderSite, Site, SiteError};
pub use stack::{HistoryRange, StackRead, read_difference, read_stack};
