//! Worker processes for policy sets and for readiness scripts: [`RuleWorkers`] is the pool, [`serve`] the code in
//! such a process. A rule that takes too long, needs too much memory or crashes ends its process, and the set
//! denies.

mod pool;
mod protocol;
mod sent_document;
mod serve;
mod worker;

pub use pool::RuleWorkers;
pub use protocol::RuleLimits;
pub use serve::{RunScript, ServeError, serve};
