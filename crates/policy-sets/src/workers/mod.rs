//! Policy sets, and scripts of readiness, in processes of their own: [`RuleWorkers`] keeps them ready, [`serve`] is what
//! such a process does. A rule that takes too long, needs too much memory or crashes ends its process, and the set denies.

mod pool;
mod protocol;
mod sent_document;
mod serve;
mod worker;

pub use pool::RuleWorkers;
pub use protocol::RuleLimits;
pub use serve::{RunScript, ServeError, serve};
