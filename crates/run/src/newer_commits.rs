//! Handles a run whose commit is no longer the newest, because the run was repeated or is late. A stack to which a
//! newer commit was applied is skipped, because a plan for the older commit would revert it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{RunContext, StateBackend, Target, apply::NewerCommitCheck};
use konverge_base::{
    error::UserError,
    model::{CommitId, StackId, apply_result::ApplyReport},
    sync::lock,
};
use konverge_state::{IndexedStates, Proven};

/// The number of states that are read concurrently.
const AT_ONCE: usize = 8;

/// The history of the branch that is applied.
#[async_trait]
pub trait BranchHistory: Send + Sync {
    /// Returns the commits of the branch that the applied commit does not contain.
    ///
    /// # Errors
    /// The commits cannot be determined.
    async fn newer_commits(&self) -> Result<BTreeSet<CommitId>, UserError>;

    /// Reads the branch again, because another run has applied these commits in the meantime.
    ///
    /// # Errors
    /// The commits cannot be determined.
    async fn newer_commits_now(&self, applied: &[CommitId]) -> Result<BTreeSet<CommitId>, UserError>;
}

/// The commits of the branch that are newer than the applied one, and the stacks to which they were applied.
pub struct NewerCommits {
    run: RunContext,
    history: Box<dyn BranchHistory>,
    /// The serial of each state when this run started.
    looked_at: BTreeMap<StackId, u64>,
    after: Mutex<BTreeSet<CommitId>>,
    found: Mutex<BTreeMap<StackId, CommitId>>,
}

impl NewerCommits {
    /// Reads the commits that are newer than the applied one.
    ///
    /// # Errors
    /// Errors of the history.
    pub async fn find(
        run: &RunContext,
        known: &Proven<IndexedStates>,
        history: Box<dyn BranchHistory>,
    ) -> Result<Self, UserError> {
        let after = history.newer_commits().await?;
        let entries = known.entries.iter();
        Ok(Self {
            run: run.clone(),
            history,
            looked_at: entries.map(|(id, entry)| (id.clone(), entry.serial)).collect(),
            after: Mutex::new(after),
            found: Mutex::default(),
        })
    }

    /// Returns the targets to which no newer commit was applied or attempted, in the given order. Each of the others
    /// gets a note. `renamed` has the recorded identities that targets continue.
    ///
    /// # Errors
    /// A state cannot be read.
    pub async fn without(
        &self,
        backend: &StateBackend,
        targets: Vec<Target>,
        renamed: &BTreeMap<StackId, StackId>,
    ) -> Result<Vec<Target>, UserError> {
        if lock(&self.after).is_empty() {
            return Ok(targets);
        }
        let kept = stream::iter(targets)
            .map(async |target| {
                let recorded = renamed.get(&target.id).unwrap_or(&target.id);
                let state = backend.states.load(recorded).await?;
                let commits: Vec<_> = state.iter().flat_map(|state| state.commits()).collect();
                Ok::<_, UserError>((!self.is_superseded(&target.id, &commits)).then_some(target))
            })
            .buffered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        Ok(kept.into_iter().flatten().collect())
    }

    /// Returns the skipped stacks, each with the newer commit that was applied to it.
    pub fn superseded_stacks(&self) -> BTreeMap<StackId, CommitId> {
        lock(&self.found).clone()
    }

    /// Removes the skipped stacks from the report of an apply, and returns them.
    pub fn take_out_of(&self, report: &mut ApplyReport) -> BTreeMap<StackId, CommitId> {
        let newer = self.superseded_stacks();
        report.stacks.retain(|stack| !newer.contains_key(&stack.id));
        newer
    }

    /// Returns true if a commit that was applied to a stack is newer, and prints a note then.
    fn is_superseded(&self, stack: &StackId, commits: &[CommitId]) -> bool {
        let newer = commits.iter().find(|commit| lock(&self.after).contains(*commit));
        let Some(newer) = newer else { return false };
        self.run.notes.note(&format!(
            "{stack} has the newer commit {}, so this run does not apply it",
            newer.short()
        ));
        lock(&self.found).insert(stack.clone(), newer.clone());
        true
    }

    /// Reads the branch again. If that fails, the stack must stop: a plan for an older commit would show a rollback,
    /// which would be reported as an unreviewed change.
    async fn ask_again(&self, stack: &StackId, commits: &[CommitId]) -> Result<(), UserError> {
        let after = self.history.newer_commits_now(commits).await;
        let after = after.map_err(|failure| {
            let what = format!(
                "another run applied {stack} in the meantime, and it is unknown which commit is newer"
            );
            UserError {
                message: format!("{what}: {}", failure.message),
                ..failure
            }
        })?;
        *lock(&self.after) = after;
        Ok(())
    }
}

#[async_trait]
impl NewerCommitCheck for NewerCommits {
    async fn has_newer(&self, stack: &StackId, serial: u64, commits: &[CommitId]) -> Result<bool, UserError> {
        if self.is_superseded(stack, commits) {
            return Ok(true);
        }
        // The state was written after this run started, perhaps with a commit that this run does not know yet.
        if commits.is_empty() || self.looked_at.get(stack) == Some(&serial) {
            return Ok(false);
        }
        self.ask_again(stack, commits).await?;
        Ok(self.is_superseded(stack, commits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{backend, id, noted_run, record, stack, state};
    use konverge_base::error::ErrorKind;

    fn commit(letter: char) -> CommitId {
        letter.to_string().repeat(40).parse().unwrap()
    }

    /// A branch that had these commits after the applied one, and has others when it is read again.
    struct Branch {
        newer: &'static str,
        later: Option<&'static str>,
    }

    #[async_trait]
    impl BranchHistory for Branch {
        async fn newer_commits(&self) -> Result<BTreeSet<CommitId>, UserError> {
            Ok(self.newer.chars().map(commit).collect())
        }

        async fn newer_commits_now(&self, _: &[CommitId]) -> Result<BTreeSet<CommitId>, UserError> {
            let later = self
                .later
                .ok_or_else(|| UserError::new(ErrorKind::Github, "no answer"))?;
            Ok(later.chars().map(commit).collect())
        }
    }

    fn applied(name: &str, letter: char) -> konverge_base::model::state::StackState {
        konverge_base::model::state::StackState {
            commit: Some(commit(letter)),
            ..state(name, &["web"])
        }
    }

    /// A repeated run of an older commit would put the older one back.
    #[tokio::test]
    async fn a_stack_with_a_newer_commit_is_left_out_and_said() {
        let backend = backend();
        record(&backend, applied("shop/dev", 'a')).await;
        record(&backend, applied("shop/prod", 'c')).await;
        record(&backend, applied("shop/old", 'c')).await;
        let (run, notes) = noted_run(&[]);
        let known = backend.states.known().await.unwrap();
        let branch = Branch {
            newer: "bc",
            later: None,
        };
        let newer = NewerCommits::find(&run, known, Box::new(branch)).await.unwrap();
        let targets = ["shop/dev", "shop/prod", "shop/new", "shop/renamed"];
        let targets = targets.map(|name| Target::new(&stack(name), None)).to_vec();
        let renamed = BTreeMap::from([(id("shop/renamed"), id("shop/old"))]);
        let kept = newer.without(&backend, targets, &renamed).await.unwrap();
        let kept: Vec<_> = kept.iter().map(|target| target.id.as_str()).collect();
        assert_eq!(kept, ["shop/dev", "shop/new"]);
        let skipped = newer.superseded_stacks();
        assert_eq!(
            skipped,
            [(id("shop/prod"), commit('c')), (id("shop/renamed"), commit('c'))].into()
        );
        let said = notes.take();
        assert!(
            said.len() == 2 && said[0].contains("has the newer commit"),
            "{said:?}"
        );
    }

    #[tokio::test]
    async fn a_state_that_another_run_wrote_meanwhile_is_compared_with_the_branch_of_now() {
        let backend = backend();
        let serial = record(&backend, applied("shop/prod", 'a')).await;
        let (run, _) = noted_run(&[]);
        let known = backend.states.known().await.unwrap();
        let find = async |newer, later| {
            let branch = Box::new(Branch { newer, later });
            NewerCommits::find(&run, known, branch).await.unwrap()
        };
        let prod = id("shop/prod");
        let asked = find("", Some("d")).await;
        let has = async |newer: &NewerCommits, serial, letter| {
            newer.has_newer(&prod, serial, &[commit(letter)]).await
        };
        assert!(!has(&asked, serial, 'd').await.unwrap(), "nobody wrote it since");
        assert!(has(&asked, serial + 1, 'd').await.unwrap());
        assert!(!asked.has_newer(&prod, serial + 1, &[]).await.unwrap());
        assert!(!has(&find("", Some("d")).await, serial + 1, 'e').await.unwrap());
        // Without an answer nothing is applied: the plan would show a rollback.
        let unknown = has(&find("", None).await, serial + 1, 'd').await.unwrap_err();
        assert!(
            unknown
                .message
                .contains("it is unknown which commit is newer: no answer"),
            "{unknown}"
        );
        assert_eq!(unknown.kind, ErrorKind::Github);
    }
}
