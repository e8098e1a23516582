//! The plain data types that the crates exchange: no I/O and no async. They are serializable, and have a version if
//! they leave the process.
//!
//! Read them in the order of a change: [`file_source`] (files of a revision) → [`stack`] → [`affected`] →
//! [`spec`] → [`plan`] → [`review`] → [`state`] → [`apply_result`].

pub mod affected;
pub mod apply_record;
pub mod apply_result;
pub mod authorization;
pub mod built_in_groups;
pub mod check_run;
pub mod claim;
pub mod comment_marker;
pub mod condition;
pub mod container;
pub mod diff;
pub mod digest;
pub mod event;
pub mod field_path;
pub mod file_source;
pub mod group_kind;
pub mod health;
pub mod hook;
pub mod ids;
pub mod json_parts;
pub mod kcl_modules;
pub mod kind_scopes;
pub mod lint;
pub mod masked_value;
pub mod model_change;
pub mod note;
pub mod notify_event;
pub mod notify_receiver;
pub mod object_rules;
pub mod other_names;
pub mod package_lock;
pub mod path;
pub mod permission_changes;
pub mod plan;
mod plan_digest;
pub mod plan_document;
pub mod policy_finding;
pub mod quantity;
pub mod reference;
pub mod resolve;
pub mod resource_parts;
pub mod review;
pub mod review_difference;
pub mod rollout;
pub mod setting_change;
pub mod shard;
pub mod spec;
pub mod stack;
pub mod stack_folder;
pub mod stack_look;
pub mod stack_output;
pub mod stack_status;
pub mod stack_test;
pub mod state;
pub mod store_setting;
pub mod takeover;
pub mod text;
pub mod timeline;
pub mod watch_event;
pub mod week_activity;
pub mod workspace_name;

pub use digest::Digest;
pub use field_path::FieldPath;
pub use group_kind::GroupKind;
pub use ids::{ClusterName, CommitId, InvalidId, ResourceId, StackId};
pub use notify_event::NotifyEvent;
pub use notify_receiver::{NotifyKind, NotifyLanguage};
pub use path::RepoPath;
pub use resource_parts::ObjectParts;
pub use shard::Shard;
pub use stack_folder::StackFolder;
