//! The file `konverge.adopt.yaml`, for a repository whose stacks ran before Konverge was used. It names the stacks that
//! Konverge takes over without a change.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::{OpenRevision, RunContext, StateBackend, Target, renamed_stacks};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, StackId, file_source::Source},
    yaml,
};
use konverge_repo::konfig::Layout;
use konverge_state::{IndexedStates, Proven};

/// The name of the file, at the root of the repository.
pub const FILE_NAME: &str = "konverge.adopt.yaml";

/// The comment at the start of the file.
const HEAD: &str = "\
# The stacks that Konverge takes over as they run: `konverge adopt --write` writes this file.
# The pull request that changes it previews them, and its merge takes over those that would not change.
# While this file is there, stacks that were never applied and that no pull request showed are left alone.
# Delete it when every stack is taken over.
";

/// The parsed content of `konverge.adopt.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adoption {
    /// The stacks that Konverge takes over.
    #[serde(default)]
    pub stacks: BTreeSet<StackId>,
}

impl Adoption {
    /// Reads `konverge.adopt.yaml` of a revision; `None` if the revision has no such file.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid.
    pub fn load(source: &dyn Source) -> Result<Option<Self>, UserError> {
        let read = source.read_path(&path()).map_err(|error| {
            UserError::from_error(ErrorKind::Config, error).context(format!("{FILE_NAME} cannot be read"))
        });
        let Some(bytes) = read? else {
            return Ok(None);
        };
        Self::parse(&String::from_utf8_lossy(&bytes)).map(Some)
    }

    fn parse(text: &str) -> Result<Self, UserError> {
        let invalid = |error: yaml::YamlError| {
            UserError::from_error(ErrorKind::Config, error)
                .context(format_args!("{FILE_NAME} is invalid"))
                .hint("run `konverge adopt --write` to write the file again")
        };
        if yaml::documents(text).map_err(invalid)?.is_empty() {
            return Ok(Self::default());
        }
        yaml::from_str(text).map_err(invalid)
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        if self.stacks.is_empty() {
            return format!("{HEAD}stacks: []\n");
        }
        let lines: String = self.stacks.iter().map(|id| format!("  - {id}\n")).collect();
        format!("{HEAD}stacks:\n{lines}")
    }
}

/// Returns true if `konverge.adopt.yaml` differs between two revisions.
pub fn differs(base: &dyn Source, head: &dyn Source) -> bool {
    base.files().get(&path()) != head.files().get(&path())
}

fn path() -> RepoPath {
    RepoPath::root().child(FILE_NAME)
}

/// The stacks of a layout that were ever applied, under their identity or an earlier one.
pub struct RecordedStacks<'a> {
    known: &'a Proven<IndexedStates>,
    renamed: BTreeMap<StackId, StackId>,
}

impl<'a> RecordedStacks<'a> {
    /// # Errors
    /// Errors of the store.
    pub async fn find(
        backend: &StateBackend,
        layout: &Layout,
        known: &'a Proven<IndexedStates>,
    ) -> Result<Self, UserError> {
        let renamed = renamed_stacks::renamed_stacks(backend, layout, known).await?;
        Ok(Self { known, renamed })
    }

    /// Returns true if the stack was ever applied.
    pub fn has(&self, id: &StackId) -> bool {
        self.known.was_applied(id) || self.renamed.contains_key(id)
    }
}

/// Removes the stacks that were never applied from the pending ones of an apply by hand, with a note. Only a job knows
/// which of these stacks a merged pull request showed, so by hand each one must be named.
///
/// # Errors
/// `konverge.adopt.yaml` is invalid; errors of the store.
pub async fn leave_alone(
    run: &RunContext,
    head: &OpenRevision,
    backend: &StateBackend,
    targets: &mut Vec<Target>,
) -> Result<(), UserError> {
    if Adoption::load(head.source.as_ref())?.is_none() {
        return Ok(());
    }
    let known = backend.states.known().await?;
    let recorded = RecordedStacks::find(backend, &head.layout, known).await?;
    let all = targets.len();
    targets.retain(|target| target.head.is_none() || recorded.has(&target.id));
    let left = all - targets.len();
    if left > 0 {
        run.notes.note(&format!(
            "{} never applied: left alone while {FILE_NAME} is there. `konverge adopt` lists them, `konverge apply STACK` takes one over",
            were(left)
        ));
    }
    Ok(())
}

/// Returns the sentence about the stacks that were left alone; empty if there are none.
pub fn left_alone_text(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!(
            "{} never applied, and no merged pull request showed what a first apply does: left alone while {FILE_NAME} is there. `konverge adopt` lists them.\n",
            were(count)
        ),
    }
}

fn were(count: usize) -> String {
    match count {
        1 => "1 stack was".to_owned(),
        count => format!("{count} stacks were"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for names in [&[][..], &["shop/dev", "acme/shop/prod"][..]] {
            let adoption = Adoption {
                stacks: names.iter().map(|name| name.parse().unwrap()).collect(),
            };
            assert_eq!(Adoption::parse(&adoption.text()).unwrap(), adoption);
        }
        assert_eq!(
            Adoption::parse("# only a comment\n").unwrap(),
            Adoption::default()
        );
        let error = Adoption::parse("stack: [shop/dev]\n").unwrap_err();
        assert!(error.message.contains(FILE_NAME), "{error:?}");
    }

    use crate::test_fixture::{Files, backend, id, record, stack, state};

    #[test]
    fn an_empty_file_adopts_nothing_and_is_not_the_same_as_none() {
        let load = |texts: &[(&str, &str)]| Adoption::load(&Files::new(texts));
        assert_eq!(load(&[]).unwrap(), None);
        assert_eq!(load(&[(FILE_NAME, "")]).unwrap(), Some(Adoption::default()));
        assert_eq!(
            load(&[("appops/konverge.adopt.yaml", "stacks: [shop/dev]\n")]).unwrap(),
            None
        );
        let invalid = load(&[(FILE_NAME, "stacks: [..]\n")]).unwrap_err();
        assert!(invalid.hints[0].contains("konverge adopt --write"), "{invalid:?}");
        let (one, other) = (
            Files::new(&[(FILE_NAME, "")]),
            Files::new(&[(FILE_NAME, "stacks: []\n")]),
        );
        assert!(differs(&one, &other) && differs(&one, &Files::default()) && !differs(&one, &one));
    }

    #[tokio::test]
    async fn a_stack_was_applied_under_its_present_or_its_earlier_identity() {
        let backend = backend();
        record(&backend, state("shop/prod", &["web"])).await;
        record(&backend, state("shop/old", &["web"])).await;
        let known = backend.states.known().await.unwrap();
        let recorded = RecordedStacks {
            known,
            renamed: BTreeMap::from([(id("shop/renamed"), id("shop/old"))]),
        };
        assert!(recorded.has(&id("shop/prod")) && recorded.has(&id("shop/renamed")));
        assert!(!recorded.has(&stack("shop/new").id));
    }

    #[test]
    fn stacks_that_are_left_alone_are_counted() {
        assert_eq!(left_alone_text(0), "");
        assert!(left_alone_text(1).starts_with("1 stack was never applied"));
        assert!(left_alone_text(2).starts_with("2 stacks were never applied"));
    }
}
