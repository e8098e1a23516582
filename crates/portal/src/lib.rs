//! The portal: what stands, since when and by whom. Pure functions from recorded data to pages and JSON documents.
//!
//! - [`Overview`]: every stack with its [`StackCondition`]s, the worst first
//! - [`StackDetails`]: one stack with its resources, its history, its lease and its drift
//! - [`StateDifference`]: what changed between two serials
//! - [`SearchIndex`]: kinds, names and images of all stacks
//! - [`PortalOperation`]: what can be asked for, and [`AuditEntry`]: what was
//! - [`html`]: the pages; [`openapi`]: the description of the JSON documents
//!
//! A page of the static site and the same page of `konverge serve` have the same address below the root
//! ([`site_path`]), so links are relative and work in both.

mod difference;
pub mod html;
mod model;
mod openapi;
mod operation;
mod search;
pub mod site_path;

pub use difference::{ChangedResource, SerialChange, StateAtSerial, StateDifference};
pub use konverge_base::model::condition::{HeadFact, StackCondition, StackFacts};
pub use model::{
    AppliedState, DriftView, FreezeView, HistoryDocument, HistoryRow, LeaseView, Overview, OverviewRow,
    StackDetails, StackIndex, StoppedView, Writer,
};
pub use openapi::openapi;
pub use operation::{
    AuditDocument, AuditEntry, NextStep, OperationAnswer, OperationInput, OperationRefusal, PortalOperation,
    PortalPerson, RequestOutcome, next_step,
};
pub use search::{SearchHit, SearchIndex, SearchNames, SearchResult};
