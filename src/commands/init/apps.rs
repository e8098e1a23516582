//! Looks for stacks of AppConfigurations when `init` sets up a repository.

use std::collections::BTreeSet;

use konverge_base::model::{RepoPath, file_source::Source};
use konverge_kusion as kusion;
use konverge_repo::konfig::{Layout, declared_dependencies};

/// The packages that define AppConfiguration in the present Kusion and in Kusion 0.10.
const PACKAGE: &str = "kam";
const OLD_PACKAGE: &str = "catalog";

/// The stacks of AppConfigurations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AppSurvey {
    /// The number of stacks with an AppConfiguration.
    pub stacks: usize,
    /// The number of stacks that are for Kusion 0.10.
    pub old: usize,
    /// The workspaces of the repository, by name.
    pub workspaces: BTreeSet<String>,
    /// The names of stacks without a workspace of the same name.
    pub without: BTreeSet<String>,
}

impl AppSurvey {
    pub(super) fn take(layout: &Layout, files: &dyn Source) -> Self {
        let mut survey = Self::default();
        let folder = RepoPath::root().child(kusion::FOLDER);
        for path in files.files().keys() {
            if path.parent().as_ref() == Some(&folder)
                && let Some(name) = path.file_name().strip_suffix(".yaml")
                && kusion::workspace_file(name).is_some()
            {
                survey.workspaces.insert(name.to_owned());
            }
        }
        for stack in &layout.stacks {
            let kcl_mod = files.read_path(&stack.folder.child("kcl.mod")).ok().flatten();
            let dependencies = kcl_mod.and_then(|text| declared_dependencies(&text).ok());
            let has = |package: &str| {
                dependencies
                    .iter()
                    .flatten()
                    .any(|dependency| dependency.name == package)
            };
            if has(PACKAGE) {
                survey.stacks += 1;
                if !survey.workspaces.contains(stack.names.name()) {
                    survey.without.insert(stack.names.name().to_owned());
                }
            } else if has(OLD_PACKAGE) {
                survey.old += 1;
            }
        }
        survey
    }

    /// Returns the only workspace, if a rule must assign it to all stacks because their names differ from its name.
    pub(super) fn only_workspace(&self) -> Option<&str> {
        let mut names = self.workspaces.iter();
        let only = names
            .next()
            .filter(|_| names.next().is_none() && self.stacks > 0)?;
        (only != "default" && !self.without.is_empty()).then_some(only)
    }

    /// Describes in sentences what was found.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.stacks > 0 {
            let count = match self.stacks {
                1 => "1 stack holds".to_owned(),
                count => format!("{count} stacks hold"),
            };
            let workspaces = match self.workspaces.len() {
                0 => "no file in `workspaces`".to_owned(),
                1 => "1 workspace".to_owned(),
                count => format!("{count} workspaces"),
            };
            found.push(format!(
                "{count} AppConfigurations, as since Kusion 0.12, with {workspaces}"
            ));
        }
        if self.old > 0 {
            found.push(format!(
                "{} of Kusion 0.10 (`catalog` in kcl.mod): their AppConfigurations are not read",
                match self.old {
                    1 => "1 stack is".to_owned(),
                    count => format!("{count} stacks are"),
                }
            ));
        }
        found
    }

    /// Returns a hint for stacks without a workspace.
    pub(super) fn hint(&self) -> Option<String> {
        let has_one = |name: &String| {
            self.workspaces.contains("default")
                || self.only_workspace().is_some()
                || self.workspaces.contains(name)
        };
        let names: Vec<_> = self.without.iter().filter(|name| !has_one(name)).collect();
        let first = names.first()?;
        let all: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        Some(format!(
            "stacks named {} have no workspace: `konverge state import ~/.kusion --workspace {first}` takes one out of Kusion's \
             local backend; or write `{}/{first}.yaml`, if a module asks for a setting",
            all.join(", "),
            kusion::FOLDER
        ))
    }
}
