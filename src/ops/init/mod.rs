//! The `init` use case: examines the repository, writes `konverge.yaml` and the workflow, and never
//! overwrites a file.

mod apps;
mod locks;
mod survey;

use std::path::Path;

use super::{
    OpenRevision, RevisionSpec, RunContext,
    affected::{self, AffectedRequest},
    compiler::Compiler,
};
pub use crate::checkout::WrittenFile;
use crate::{
    checkout::{self, Existing},
    config::{Config, FILE_NAME},
    error::{ErrorKind, UserError},
    git::Repository,
    model::{ClusterName, RepoPath, stack::SettingsOrder},
};
use survey::Survey;

/// The configuration to write; placeholders are in braces.
const CONFIG: &str = include_str!("konverge.yaml");

/// The workflow to write, with a placeholder for the applied branch; the example monorepo has the same.
pub const WORKFLOW: &str = include_str!("workflow.yml");

/// The placeholder of the branch.
const BRANCHES: &str = "branches: [main]";

/// The step that runs Konverge.
const STEP: &str = "      - uses: konverge/konverge@v0\n";

/// The path of the workflow.
const WORKFLOW_PATH: &str = ".github/workflows/konverge.yml";

/// The names of the contexts of the kubeconfig that kubectl would use, the current one first.
pub(super) fn kubeconfig_contexts(run: &RunContext) -> Vec<String> {
    survey::contexts(run)
}

/// The maximum number of kubeconfig contexts that are offered.
const CONTEXTS: usize = 10;

/// What was done and what was found.
pub struct Report {
    /// Each file with its result.
    pub files: Vec<(&'static str, WrittenFile)>,
    /// Sentences about the repository.
    pub found: Vec<String>,
    /// The commands that were tried, and their results.
    pub tried: Vec<(String, Result<String, UserError>)>,
    /// What to do next.
    pub hints: Vec<String>,
}

/// Examines the repository that contains a folder, and writes both files into its root.
///
/// # Errors
/// There is no repository, or it cannot be written.
pub async fn run(run: &RunContext) -> Result<Report, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let branch = repository.default_branch_name();
    let survey = survey::take(run, &repository.worktree()?)?;
    let files = write(repository.root(), branch.as_deref().unwrap_or("main"), &survey)?;
    let mut report = Report {
        files,
        found: describe_survey(&survey),
        tried: Vec::new(),
        hints: hints(&survey),
    };
    // Before anything is tried: it explains what the tries say.
    for hint in locks::hints(&repository, &survey.layout) {
        run.notes.note(&format!("hint: {hint}"));
    }
    if survey.layout.has_module && !survey.layout.stacks.is_empty() {
        report.tried = try_commands(run, &repository).await;
    }
    Ok(report)
}

fn describe_survey(survey: &Survey) -> Vec<String> {
    let layout = &survey.layout;
    if !layout.has_module {
        return vec!["there is no `kcl.mod` that git knows: Konverge works on a monorepo of KCL".to_owned()];
    }
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let place = match &survey.folder {
        Some(folder) => format!(" in `{folder}`"),
        None => String::new(),
    };
    let mut found = vec![format!(
        "{} of {}{place}",
        counted(layout.stacks.len(), "stack"),
        counted(layout.projects.len(), "project"),
    )];
    let era = match survey.order {
        SettingsOrder::V07 => "the settings files are those of Kusion v0.7: `kcl.settings: v0.7`",
        SettingsOrder::V091 => "`stack.yaml` names a kubeconfig, as in Kusion v0.9.1: `kcl.settings: v0.9.1`",
        SettingsOrder::V090 => "the settings files are read as Kusion v0.9.0 does",
    };
    match survey.apps.stacks == layout.stacks.len() && survey.apps.stacks > 0 {
        // Nobody reads settings files here.
        true => {}
        false => found.push(era.to_owned()),
    }
    found.extend(survey.apps.describe());
    let named = survey.unknown_core.as_ref().map(|version| {
        format!(
            "; kcl.mod names {version}, which cannot be installed: code of another KCL may have to be changed"
        )
    });
    found.push(format!(
        "the KCL core is {}{}",
        survey.core,
        named.unwrap_or_default()
    ));
    if layout.left_out.len() > layout.in_packages.len() {
        let vendored = layout.left_out.len() - layout.in_packages.len();
        found.push(format!(
            "{} with a stack.yaml left out: vendored packages are not stacks",
            counted(vendored, "folder")
        ));
    }
    found.extend([layout.clash_note(), layout.package_note()].into_iter().flatten());
    match survey.contexts.len() {
        0 => {}
        count => found.push(format!(
            "{} of your kubeconfig: konverge.yaml offers them under `clusters`",
            counted(count, "context")
        )),
    }
    found
}

fn hints(survey: &Survey) -> Vec<String> {
    if !survey.layout.has_module {
        return vec![
            "write the file `kcl.mod`, with `[package]` and a `name`, add a project.yaml and a stack.yaml, and `git add` them".to_owned(),
            "if the monorepo is another repository: `konverge init --repo DIR`".to_owned(),
        ];
    }
    let mut hints = Vec::new();
    if survey.layout.stacks.is_empty() {
        hints.push(
            "add a project.yaml (`name: PROJECT`), and below it a folder with a stack.yaml (`name: STACK`) and a main.k, and \
             `git add` them"
                .to_owned(),
        );
    }
    hints.extend(survey.apps.hint());
    hints.push(
        "commit both files and open a pull request: its preview compares Spec with Spec until `clusters` is set; nothing is \
         applied until `state.url` is set, too"
            .to_owned(),
    );
    hints
}

/// Tries the next commands of a user, which shows whether the repository is usable as it is.
async fn try_commands(run: &RunContext, repository: &Repository) -> Vec<(String, Result<String, UserError>)> {
    let question = AffectedRequest {
        worktree: true,
        ..AffectedRequest::default()
    };
    let answer = affected::run(run, &question).await;
    let told = answer.map(|answer| match answer.affected.stacks.len() {
        0 => "no stack is affected by what is not committed".to_owned(),
        1 => "1 stack is affected by what is not committed".to_owned(),
        count => format!("{count} stacks are affected by what is not committed"),
    });
    let mut tried = vec![("konverge affected --worktree".to_owned(), told)];
    tried.extend(build_first(run, repository).await);
    tried
}

/// Builds one stack with the new configuration, which is not in git yet.
async fn build_first(
    run: &RunContext,
    repository: &Repository,
) -> Option<(String, Result<String, UserError>)> {
    let text = std::fs::read_to_string(repository.root().join(FILE_NAME)).ok()?;
    let config = match Config::parse(&text) {
        Ok(config) => config,
        Err(error) => return Some(("konverge config check".to_owned(), Err(error.into()))),
    };
    let workspace = match OpenRevision::open_under(run, repository, &RevisionSpec::Worktree, &config) {
        Ok(workspace) => workspace,
        Err(failure) => return Some(("konverge build --all".to_owned(), Err(failure))),
    };
    let stack = workspace.layout.stacks.first()?;
    let compiler = Compiler::new(run, &config);
    let built = compiler.spec(&workspace, stack).await;
    let told = built.map(|spec| match spec.resources.len() {
        1 => "1 resource".to_owned(),
        count => format!("{count} resources"),
    });
    Some((format!("konverge build {}", stack.folder), told))
}

fn write(root: &Path, branch: &str, survey: &Survey) -> Result<Vec<(&'static str, WrittenFile)>, UserError> {
    let config = CONFIG
        .replace("{id}", &uuid::Uuid::new_v4().to_string())
        .replace("{core}", &survey.core)
        .replace("{settings}", settings(survey.order))
        .replace("{clusters}", &clusters(&survey.contexts))
        .replace("{stacks}", &stacks(survey.apps.only_workspace()));
    let mut workflow = WORKFLOW.replace(BRANCHES, &format!("branches: [{}]", scalar(branch)));
    if let Some(folder) = &survey.folder {
        workflow = in_folder(&workflow, folder);
    }
    [(FILE_NAME, &config), (WORKFLOW_PATH, &workflow)]
        .into_iter()
        .map(|(path, text)| Ok((path, write_new(root, path, text)?)))
        .collect()
}

fn settings(order: SettingsOrder) -> &'static str {
    match order {
        SettingsOrder::V07 => {
            "  # Which Kusion's reading of kcl.yaml and ci-test/settings.yaml holds here.\n  settings: v0.7\n"
        }
        SettingsOrder::V091 => "  # Which Kusion's reading of kcl.yaml holds here.\n  settings: v0.9.1\n",
        SettingsOrder::V090 => "",
    }
}

/// The contexts of the kubeconfig as clusters, in comments: a person decides which of them to use.
fn clusters(contexts: &[String]) -> String {
    let entry = |name: &str, context: &str| format!("#   {name}:\n#     context: {}\n", scalar(context));
    if contexts.is_empty() {
        return entry("prod", "prod");
    }
    let offered = contexts.iter().take(CONTEXTS).enumerate();
    offered
        .map(|(at, context)| match context.parse::<ClusterName>() {
            Ok(name) => entry(&scalar(name.as_str()), context),
            Err(_) => entry(&format!("cluster-{}", at + 1), context),
        })
        .collect()
}

/// The rules for stacks, in comments unless all stacks have one workspace of another name.
fn stacks(workspace: Option<&str>) -> String {
    match workspace {
        Some(name) => format!("stacks:\n  - match: '**'\n    workspace: {}\n", scalar(name)),
        None => "# stacks:\n#   - match: appops/*/prod\n#     cluster: prod\n#     after: [appops/*/dev]\n"
            .to_owned(),
    }
}

/// The workflow for a monorepo in a subfolder of its repository.
fn in_folder(workflow: &str, folder: &RepoPath) -> String {
    let with = format!(
        "{STEP}        with:\n          working-directory: {}\n",
        scalar(folder.as_str())
    );
    workflow.replace(STEP, &with).replace(
        "        # with: { environment: production } #",
        "          # environment: production #",
    )
}

/// A name in YAML: quoted unless it can only be parsed as text.
fn scalar(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let keywords = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(is_word)
        && !keywords.contains(&name.to_ascii_lowercase().as_str());
    match is_plain {
        true => name.to_owned(),
        false => serde_json::Value::from(name).to_string(),
    }
}

fn write_new(root: &Path, path: &str, text: &str) -> Result<WrittenFile, UserError> {
    checkout::write(root, path.as_ref(), text.as_bytes(), Existing::Keep).map_err(|error| {
        UserError::new(
            ErrorKind::Config,
            format!("could not write {}: {error}", root.join(path).display()),
        )
        .hint("nothing was overwritten; make the folder writable and run `konverge init` again")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::konfig::Layout;

    fn survey() -> Survey {
        Survey {
            layout: Layout::default(),
            order: SettingsOrder::V090,
            folder: None,
            core: Config::default_core().to_owned(),
            unknown_core: None,
            contexts: Vec::new(),
            apps: apps::AppSurvey::default(),
        }
    }

    fn read(folder: &Path, path: &str) -> String {
        std::fs::read_to_string(folder.join(path)).unwrap()
    }

    #[test]
    fn what_is_written_is_valid_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let first = write(folder.path(), "main", &survey()).unwrap();
        assert!(first.iter().all(|(_, written)| *written == WrittenFile::Created));
        let config = Config::parse(&read(folder.path(), FILE_NAME)).unwrap();
        assert!(config.state.id.is_some());
        std::fs::write(folder.path().join(FILE_NAME), "mine").unwrap();
        let second = write(folder.path(), "main", &survey()).unwrap();
        assert!(second.iter().all(|(_, written)| *written == WrittenFile::Kept));
        assert_eq!(read(folder.path(), FILE_NAME), "mine");
    }

    #[test]
    fn merges_into_whichever_branch_is_the_default_are_applied() {
        for branch in ["master", "no", "1.0", "rel:ease", "feature/x"] {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), branch, &survey()).unwrap();
            let text = read(folder.path(), WORKFLOW_PATH);
            let workflow: serde_json::Value = crate::yaml::from_str(&text).unwrap();
            assert_eq!(workflow["on"]["push"]["branches"], serde_json::json!([branch]));
        }
    }

    #[test]
    fn a_monorepo_in_a_folder_has_its_working_directory_in_each_job() {
        let folder = tempfile::tempdir().unwrap();
        let survey = Survey {
            folder: RepoPath::normalize("platform/konfig"),
            order: SettingsOrder::V07,
            contexts: vec![
                "kind-dev".to_owned(),
                "arn:aws:eks:x".to_owned(),
                "a\n  b: {}".to_owned(),
            ],
            ..survey()
        };
        write(folder.path(), "main", &survey).unwrap();
        let workflow: serde_json::Value = crate::yaml::from_str(&read(folder.path(), WORKFLOW_PATH)).unwrap();
        for job in ["preview", "apply", "drift"] {
            let steps = workflow["jobs"][job]["steps"].as_array().unwrap();
            assert_eq!(steps[1]["with"]["working-directory"], "platform/konfig", "{job}");
        }
        let text = read(folder.path(), FILE_NAME);
        let config = Config::parse(&text).unwrap();
        assert_eq!(config.kcl.settings, SettingsOrder::V07);
        assert!(config.clusters.is_empty(), "they are offered, not taken");
        // Without the comment signs they are clusters.
        let offered: String = text
            .lines()
            .skip_while(|line| *line != "# clusters:")
            .take_while(|line| line.starts_with('#'))
            .map(|line| {
                format!(
                    "{}\n",
                    line.trim_start_matches('#').strip_prefix(' ').unwrap_or_default()
                )
            })
            .collect();
        let config = Config::parse(&offered).unwrap();
        let contexts: Vec<_> = config
            .clusters
            .values()
            .filter_map(|cluster| cluster.context.as_deref())
            .collect();
        assert_eq!(contexts.len(), 3, "{offered}");
        assert!(
            contexts.contains(&"arn:aws:eks:x") && contexts.contains(&"a\n  b: {}"),
            "{contexts:?}"
        );
    }

    #[test]
    fn the_example_carries_the_same_workflow() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("konfig-example")
            .join(WORKFLOW_PATH);
        assert_eq!(std::fs::read_to_string(example).unwrap(), WORKFLOW);
    }
}
