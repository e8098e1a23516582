//! The `init` use case: examines the repository, writes `konverge.yaml` and the workflow, and never
//! overwrites a file.

mod answers;
mod apps;
mod core_search;
mod core_trials;
mod environments;
mod files;
mod locks;
mod package_layout;
mod survey;

use crate::commands::adopt;
pub use answers::{JobCloud, JobForge, NamedContext, Setup, check_address};
use core_trials::TrialScope;
pub use core_trials::{CoreRow, CoreTrials};
pub use files::{GITEA_WORKFLOW, WORKFLOW};
pub use konverge_base::checkout::WrittenFile;
use konverge_base::{checkout::Existing, error::UserError, model::stack::SettingsOrder};
use konverge_config::{Config, FILE_NAME};
use konverge_repo::git::Repository;
use konverge_report::plural;
use konverge_run::{
    RunContext,
    adoption::{self, Adoption},
    affected::{self, AffectedRequest},
};
use survey::Survey;

/// Returns the names of the contexts of the kubeconfig that kubectl would use, the current one first.
pub fn kubeconfig_contexts(run: &RunContext) -> Vec<String> {
    survey::contexts(run)
}

/// Files and findings of a run of `init`.
pub struct Report {
    /// Each file with its result.
    pub files: Vec<(&'static str, WrittenFile)>,
    /// Sentences about the repository.
    pub found: Vec<String>,
    /// The commands that were tried, and their results.
    pub tried: Vec<(String, Result<String, UserError>)>,
    /// The cores that were tried.
    pub cores: CoreTrials,
    /// Hints about missing parts.
    pub hints: Vec<String>,
    /// The next step, if the stacks compile; `None` without stacks.
    pub next: Option<&'static str>,
}

/// Examines the repository that contains a folder, tries which core compiles its stacks, and writes both files into its
/// root. With `install`, cores that are missing are downloaded.
///
/// # Errors
/// There is no repository, or it cannot be written.
pub async fn run(run: &RunContext, install: bool, setup: &Setup) -> Result<Report, UserError> {
    setup.check()?;
    environments::check(&setup.environments)?;
    let repository = Repository::discover(&run.dir)?;
    let branch = repository.default_branch_name();
    let survey = survey::take(run, &repository.worktree()?)?;
    // Show these hints first, because they explain the errors of the cores that are tried.
    for hint in locks::hints(&repository, &survey.layout) {
        run.notes.info(&format!("hint: {hint}"));
    }
    let mut tried = Vec::new();
    let mut cores = CoreTrials::default();
    let has_stacks = survey.layout.has_module && !survey.layout.stacks.is_empty();
    if has_stacks {
        match try_cores(run, &repository, &survey, install).await {
            Ok(found) => cores = found,
            Err((command, failure)) => {
                run.check_interrupted()?;
                tried.push((command.to_owned(), Err(failure)));
            }
        }
    }
    let branch = branch.as_deref().unwrap_or("main");
    let mut files = files::write(repository.root(), branch, &survey, &cores, setup)?;
    if setup.adopt {
        let written = adopt::write_file(repository.root(), &Adoption::default(), Existing::Keep)?;
        files.push((adoption::FILE_NAME, written));
    }
    if has_stacks {
        tried.insert(0, try_affected(run).await);
    }
    Ok(Report {
        files,
        found: describe_survey(&survey, &cores),
        tried,
        cores,
        hints: hints(&survey, setup),
        next: has_stacks.then(|| setup.next_step()),
    })
}

/// Tries cores with the configuration that will be written, or the core of the present configuration.
async fn try_cores(
    run: &RunContext,
    repository: &Repository,
    survey: &Survey,
    install: bool,
) -> Result<CoreTrials, (&'static str, UserError)> {
    let existing = std::fs::read_to_string(repository.root().join(FILE_NAME)).ok();
    let text = existing
        .clone()
        .unwrap_or_else(|| files::config_text(survey, &CoreTrials::default(), &Setup::default()));
    let config = Config::parse(&text).map_err(|error| ("konverge config check", error.into()))?;
    let scope = TrialScope {
        wanted: match existing {
            Some(_) => Some(config.kcl.core()),
            None => survey.named_core.as_deref(),
        },
        others: existing.is_none(),
        install,
    };
    let found = core_trials::try_cores(run, repository, &config, &scope).await;
    found.map_err(|failure| ("konverge build --all", failure))
}

fn describe_survey(survey: &Survey, cores: &CoreTrials) -> Vec<String> {
    let layout = &survey.layout;
    if !layout.has_module {
        return vec!["there is no `kcl.mod` that git knows: Konverge works on a monorepo of KCL".to_owned()];
    }
    let place = match &survey.folder {
        Some(folder) => format!(" in `{folder}`"),
        None => String::new(),
    };
    let mut found = vec![format!(
        "{} of {}{place}",
        plural(layout.stacks.len(), "stack"),
        plural(layout.projects.len(), "project"),
    )];
    found.extend(survey.packages.describe());
    let era = match survey.order {
        SettingsOrder::V07 => "the settings files are those of Kusion v0.7: `kcl.settings: v0.7`",
        SettingsOrder::V091 => "`stack.yaml` names a kubeconfig, as in Kusion v0.9.1: `kcl.settings: v0.9.1`",
        SettingsOrder::V090 => "the settings files are read as Kusion v0.9.0 does",
    };
    // Konverge reads no settings files for AppConfigurations and packages, so their version does not matter.
    let is_read = survey.packages.include.is_empty()
        && (survey.apps.stacks == 0 || survey.apps.stacks < layout.stacks.len());
    found.extend(is_read.then(|| era.to_owned()));
    found.extend(survey.apps.describe());
    let named = survey.unknown_core.as_ref().map(|version| {
        format!(
            "; kcl.mod names {version}, which cannot be installed: code for another KCL version may have to be changed"
        )
    });
    found.push(format!(
        "the KCL core is {}{}",
        cores.chosen.as_deref().unwrap_or(Config::default_core()),
        named.unwrap_or_default()
    ));
    if layout.left_out.len() > layout.in_packages.len() {
        let vendored = layout.left_out.len() - layout.in_packages.len();
        found.push(format!(
            "{} with a stack.yaml left out: vendored packages are not stacks",
            plural(vendored, "folder")
        ));
    }
    found.extend([layout.clash_note(), layout.package_note()].into_iter().flatten());
    match survey.contexts.len() {
        0 => {}
        count => found.push(format!(
            "{} of your kubeconfig: konverge.yaml offers them under `clusters`",
            plural(count, "context")
        )),
    }
    found
}

fn hints(survey: &Survey, setup: &Setup) -> Vec<String> {
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
    hints.extend(survey.packages.hint());
    hints.extend(survey.apps.hint());
    hints.extend(setup.hint());
    hints
}

/// Tries `konverge affected`, the next command of a user.
async fn try_affected(run: &RunContext) -> (String, Result<String, UserError>) {
    let question = AffectedRequest {
        worktree: true,
        ..AffectedRequest::default()
    };
    let answer = affected::run(run, &question).await;
    let result = answer.map(|answer| match answer.affected.stacks.len() {
        0 => "no stack is affected by the uncommitted changes".to_owned(),
        1 => "1 stack is affected by the uncommitted changes".to_owned(),
        count => format!("{count} stacks are affected by the uncommitted changes"),
    });
    ("konverge affected --worktree".to_owned(), result)
}
