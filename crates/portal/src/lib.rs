//! The portal: the present state of all stacks, their history, and operations on them. Pure functions from recorded
//! data to HTML pages and JSON documents.
//!
//! - [`Overview`]: all stacks with their [`StackCondition`]s, the worst first
//! - [`StackDetails`]: one stack with its resources, its history, its lease and its drift
//! - [`StateDifference`]: the changes between two serials
//! - [`SearchIndex`]: kinds, names and images of all stacks
//! - [`PortalOperation`]: the operations that a person can request; [`AuditEntry`]: the record of a request
//! - [`RolloutsDocument`], [`Trends`], [`PermissionsDocument`]: the progress of rollouts, numbers over time, who
//!   may do what
//! - [`html`]: the pages; [`openapi`]: the description of the JSON documents
//!
//! A page of the static site and the same page of `konverge serve` have the same path below the root
//! ([`site_path`]), so relative links work in both.

mod csv;
mod difference;
pub mod html;
mod model;
mod openapi;
mod operation;
mod permissions;
mod rollouts;
mod search;
pub mod site_path;
mod stack_order;
mod trends;

pub use csv::audit_csv;
pub use difference::{ChangedResource, SerialChange, StateAtSerial, StateDifference};
pub use konverge_base::model::condition::{HeadFact, StackCondition, StackFacts};
pub use model::{
    AppliedState, DriftView, FreezeView, HistoryDocument, HistoryRow, LeaseView, LookView, Overview,
    OverviewRow, SeenDifference, SeenStack, StackDetails, StackIndex, StoppedView, Writer,
};
pub use openapi::openapi;
pub use operation::{
    AUDIT_ENTRIES, AUDIT_ROWS, AuditDocument, AuditEntry, NextStep, OperationAnswer, OperationInput,
    OperationRefusal, PortalOperation, PortalPerson, RequestOutcome, next_step,
};
pub use permissions::{Permission, PermissionSubject, PermissionsDocument};
pub use rollouts::{BegunRollout, RolloutProgress, RolloutView, RolloutsDocument, WaveStanding, WaveView};
pub use search::{SearchHit, SearchIndex, SearchNames, SearchResult};
pub use stack_order::StackOrder;
pub use trends::{TrendWeek, Trends, WeekDrift};
