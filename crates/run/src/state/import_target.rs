//! Finds the stack of the repository that an imported state of Kusion belongs to.

use crate::{OpenRevision, RevisionSpec, RunContext, revision::first_stacks};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, RepoPath, StackFolder, StackId,
        stack::{NamedBy, Stack},
    },
};
use konverge_config::ClusterChoice;
use konverge_repo::{git::Repository, konfig::Layout};
use konverge_state::kusion::KusionState;

/// The source and the target of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportRequest {
    /// The source: a file, a folder of releases or of a stack, the URL of an object (`s3://BUCKET/KEY`, `gs://`,
    /// `az://`, `oss://`) or of a folder of releases (`…/`), an `https://` URL or URL format,
    /// `mysql://USER@HOST/DATABASE`.
    pub from: String,
    /// The identity of the stack, if it differs from the one in the source. Required if the source has many stacks.
    pub stack: Option<StackId>,
    /// The cluster in the key of the state, if Kusion 0.9 stored one state per cluster: in MySQL, or in an HTTP backend
    /// whose URL has `%s`.
    pub cluster: Option<String>,
    /// The folder of the stack in the repository.
    pub folder: Option<RepoPath>,
}

/// The identity and the folder for the imported state.
pub(super) struct ImportTarget {
    /// The identity of the stack.
    pub stack: StackId,
    /// The folder of the stack in the repository.
    pub folder: StackFolder,
    /// The origin of the identity.
    pub named_by: NamedBy,
    /// The cluster of the imported objects, if the configuration names one.
    pub cluster: Option<ClusterName>,
    /// True if the repository has the stack; `None` if there is no monorepo.
    pub is_known: Option<bool>,
}

impl ImportTarget {
    /// Finds the stack to import into: the one that the user gave, or else the stack whose folder contains the file, or
    /// else the stack with the names in the file.
    /// # Errors
    /// Several stacks have these names, or the file has no names.
    pub(super) fn find(
        run: &RunContext,
        asked: &ImportRequest,
        kusion: &KusionState,
    ) -> Result<Self, UserError> {
        let repository = Repository::discover(&run.dir).ok();
        let head = repository.as_ref().and_then(|repository| {
            let head = OpenRevision::open(run, repository, &RevisionSpec::Worktree).ok()?;
            head.layout.has_module.then_some(head)
        });
        let layout = head.as_ref().map(|head| head.layout.as_ref());
        let found = match (&asked.stack, layout) {
            (Some(id), layout) => layout.and_then(|layout| layout.stack(id)),
            (None, Some(layout)) => {
                let folder = asked.folder.clone();
                let folder = folder.or_else(|| folder_of_file(run, repository.as_ref()?, &asked.from));
                stack_of_state(layout, folder.as_ref(), kusion)?
            }
            (None, None) => None,
        };
        let is_known = layout.map(|_| found.is_some());
        if let Some(stack) = found {
            return Ok(Self {
                stack: stack.id.clone(),
                folder: asked.folder.as_ref().unwrap_or(&stack.folder).clone().into(),
                named_by: stack.named_by,
                cluster: head
                    .as_ref()
                    .and_then(|head| match head.config.cluster_of(stack) {
                        ClusterChoice::Named(name) => Some(name),
                        ClusterChoice::Unconfigured
                        | ClusterChoice::Unknown(_)
                        | ClusterChoice::Ambiguous => None,
                    }),
                is_known,
            });
        }
        let stack = match &asked.stack {
            Some(stack) => stack.clone(),
            None => names(kusion)?,
        };
        Ok(Self {
            stack,
            folder: asked.folder.clone().map(StackFolder::from).unwrap_or_default(),
            named_by: NamedBy::default(),
            cluster: None,
            is_known,
        })
    }
}

/// Returns the identity that the names in the file form.
fn names(kusion: &KusionState) -> Result<StackId, UserError> {
    StackId::new(kusion.tenant.as_deref(), &kusion.project, &kusion.stack).map_err(|error| {
        UserError::from_error(ErrorKind::State, error).hint("name the stack yourself: `--stack IDENTITY`")
    })
}

/// Returns the folder in the repository that contains a file of this machine, or that `from` itself names.
fn folder_of_file(run: &RunContext, repository: &Repository, from: &str) -> Option<RepoPath> {
    if from.contains("://") {
        return None;
    }
    let path = run.dir.join(from).canonicalize().ok()?;
    let folder = if path.is_dir() {
        path.as_path()
    } else {
        path.parent()?
    };
    let root = repository.root().canonicalize().ok()?;
    RepoPath::normalize(folder.strip_prefix(root).ok()?.to_str()?)
}

/// Returns the stack that has the names of a state; of several, the one in `folder`. Tenants are compared only if both
/// have one.
fn stack_of_state<'a>(
    layout: &'a Layout,
    folder: Option<&RepoPath>,
    kusion: &KusionState,
) -> Result<Option<&'a Stack>, UserError> {
    let is_meant = |stack: &&Stack| {
        let tenants = stack.names.tenant().zip(kusion.tenant.as_deref());
        stack.names.project() == kusion.project
            && stack.names.name() == kusion.stack
            && tenants.is_none_or(|(ours, theirs)| ours == theirs)
    };
    let candidates: Vec<_> = layout.stacks.iter().filter(is_meant).collect();
    if let Some(folder) = folder
        && let Some(stack) = candidates.iter().find(|stack| folder.is_within(&stack.folder))
    {
        return Ok(Some(stack));
    }
    match candidates.as_slice() {
        [] => Ok(None),
        [stack] => Ok(Some(stack)),
        many => {
            let folders = first_stacks(many, |stack| stack.folder.as_str());
            Err(UserError::new(
                ErrorKind::State,
                format!(
                    "the state is of `{}`, and {} stacks have these names: {}",
                    names(kusion)?,
                    many.len(),
                    folders
                ),
            )
            .hint("say which one: `--folder DIR`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, stack};

    fn kusion(tenant: Option<&str>) -> KusionState {
        KusionState {
            tenant: tenant.map(str::to_owned),
            project: "shop".to_owned(),
            stack: "prod".to_owned(),
            revision: 1,
            workspace: None,
            under_way: None,
            resources: Vec::new(),
        }
    }

    fn layout(folders: &[&str]) -> Layout {
        let stacks = folders.iter().map(|folder| Stack {
            folder: RepoPath::normalize(folder).unwrap(),
            id: format!("shop/{}", folder.replace('/', "-")).parse().unwrap(),
            ..stack("shop/prod")
        });
        Layout {
            stacks: stacks.chain([stack("pay/prod")]).collect(),
            ..Layout::default()
        }
    }

    fn found(
        layout: &Layout,
        folder: Option<&str>,
        kusion: &KusionState,
    ) -> Result<Option<String>, UserError> {
        let folder = folder.map(|folder| RepoPath::normalize(folder).unwrap());
        let found = stack_of_state(layout, folder.as_ref(), kusion)?;
        Ok(found.map(|stack| stack.folder.to_string()))
    }

    #[test]
    fn a_state_belongs_to_the_stack_of_its_names_and_of_several_to_that_of_the_folder() {
        let one = layout(&["a"]);
        assert_eq!(found(&one, None, &kusion(None)).unwrap().as_deref(), Some("a"));
        assert_eq!(found(&layout(&[]), None, &kusion(None)).unwrap(), None);
        let four = layout(&["a", "b", "c", "d"]);
        assert_eq!(
            found(&four, Some("b/ci-test"), &kusion(None)).unwrap().as_deref(),
            Some("b")
        );
        // Importing into the wrong one would delete the objects of the right one.
        let ambiguous = found(&four, Some("elsewhere"), &kusion(None)).unwrap_err();
        assert!(
            ambiguous
                .message
                .contains("4 stacks have these names: `a`, `b`, `c`, and 1 more"),
            "{ambiguous}"
        );
        assert!(ambiguous.hints[0].contains("--folder"), "{ambiguous:?}");
    }

    #[test]
    fn tenants_are_compared_where_both_have_one() {
        let mut layout = layout(&["a"]);
        assert!(found(&layout, None, &kusion(Some("acme"))).unwrap().is_some());
        layout.stacks[0].names = id("acme/shop/prod");
        assert!(found(&layout, None, &kusion(None)).unwrap().is_some());
        assert!(found(&layout, None, &kusion(Some("acme"))).unwrap().is_some());
        assert!(found(&layout, None, &kusion(Some("other"))).unwrap().is_none());
    }

    #[test]
    fn names_that_form_no_identity_ask_for_one() {
        let wrong = KusionState {
            stack: "a/../b".to_owned(),
            ..kusion(None)
        };
        assert!(names(&wrong).unwrap_err().hints[0].contains("--stack IDENTITY"));
        assert_eq!(names(&kusion(Some("acme"))).unwrap(), id("acme/shop/prod"));
    }
}
