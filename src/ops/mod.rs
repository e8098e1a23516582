//! The use cases, one file each: what happens between the rooms. The only place that sees all of them.
//!
//! [`Run`] is what every use case is given; a [`Session`] opens what was asked for; [`Planning`] plans one target.

pub mod affected;
pub mod apply;
mod assertions;
pub mod build;
pub mod by_hand;
pub mod caches;
pub mod check;
pub mod ci;
pub mod clusters;
mod collisions;
pub mod cores;
pub mod doctor;
pub mod drift;
pub mod graph;
pub mod health;
mod health_rules;
pub(crate) mod held_removals;
mod identities;
mod infrastructure;
pub mod init;
mod last_applied;
pub mod masked;
mod neighbours;
pub mod order;
mod planning;
pub mod preview;
mod rescue;
mod run;
pub mod selected;
pub mod session;
pub mod shards;
mod shared_cache;
pub mod state;
mod states;
pub mod status;
mod target;
mod waiting;
mod workspace;

pub use identities::{Renamed, renamed_stacks};
pub use neighbours::Claims;
pub use planning::{Planned, Planning, Wanted};
pub use run::{Notes, Run};
pub use session::{Request, Session};
pub use states::{KeyUse, Memory, repository_id};
pub use target::{Selection, Target};
pub use workspace::{At, Knowledge, Workspace, repository_root};
