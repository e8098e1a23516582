//! `konverge set`: edits of attributes and images, in files and as pull requests.

pub mod dispatch;
pub mod edits;
pub mod github_limits;
pub mod hotfix;
pub mod hotfix_fields;
pub mod hotfix_jobs;
pub mod images;
pub mod literals;
pub mod other_stacks;
pub mod pull_requests;
pub mod refusals;

use std::sync::Arc;

use konverge_base::model::event::NoEvents;
use konverge_run::{NoNotes, RunContext};
use konverge_secrets::{HashKey, Secrets};

use crate::support::{
    git::Repository,
    process::{Konverge, Outcome},
};

/// `konverge set` in a repository.
fn set(repository: &Repository, arguments: &[&str]) -> Outcome {
    Konverge::new([&["set"], arguments].concat())
        .dir(repository.path())
        .with_kcl()
        .run()
}

/// The context of a run in a repository, without a cache.
fn context(repository: &Repository) -> RunContext {
    let core = crate::support::kcl::interpreter();
    let variables = [
        ("KONVERGE_KCL", core.display().to_string()),
        ("KONVERGE_CACHE", "off".to_owned()),
        ("HOME", repository.path().join("../none").display().to_string()),
    ];
    RunContext {
        dir: repository.path().to_owned(),
        env: variables.map(|(name, value)| (name.to_owned(), value)).into(),
        secrets: Secrets::new(HashKey::random()),
        cancel: Default::default(),
        writes: Arc::default(),
        events: Arc::new(NoEvents),
        notes: Arc::new(NoNotes),
        recorder: Default::default(),
    }
}
