//! Tries which KCL core compiles the stacks of a repository: the recommended one, and others where stacks fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::core_search::{CoreSearch, CoreTrial};
use konverge_base::{
    error::{UserError, chain},
    model::{StackId, spec::Spec, stack::Stack},
    variables,
};
use konverge_config::Config;
use konverge_kcl::{self as kcl, CoreReach, InstallOptions, Toolchain};
use konverge_repo::git::Repository;
use konverge_run::{
    NoNotes, OpenRevision, RevisionSpec, RunContext,
    compiler::{CompileError, Compilers, join_failures},
};

/// The maximum number of stacks that are compiled, spread evenly over all.
const MOST_STACKS: usize = 120;

/// The maximum number of reasons in a row.
const NAMED: usize = 2;

/// Results of the cores that were tried.
#[derive(Debug, Clone, Default)]
pub struct CoreTrials {
    /// One row for each core, newest first.
    pub rows: Vec<CoreRow>,
    /// The cores that could not be tried, and why.
    pub untried: Option<(Vec<String>, String)>,
    /// The number of stacks that each core compiled.
    pub stacks: usize,
    /// The number of stacks in the repository.
    pub all_stacks: usize,
    /// The core that fits best.
    pub chosen: Option<String>,
    /// The errors of the stacks that do not compile with the chosen core, joined.
    pub failures: Vec<UserError>,
}

/// Result of one core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreRow {
    /// Version of the core.
    pub version: String,
    /// Number of stacks that it compiled.
    pub compiled: usize,
    /// The errors of the other stacks, each with the number of stacks; the most frequent first.
    pub reasons: Vec<(String, usize)>,
    /// Names of differences between cores that explain an error, such as `one import name for two packages`.
    pub known: BTreeSet<&'static str>,
}

impl CoreTrials {
    /// One line for each core: `0.10.0: 9 of 9; 0.13.2: 0 of 9 (one import name for two packages)`.
    pub fn summary(&self) -> String {
        let rows = self.rows.iter().rev().map(|row| {
            let known: Vec<_> = row.known.iter().copied().collect();
            let why = if known.is_empty() {
                String::new()
            } else {
                format!(" ({})", known.join(", "))
            };
            format!("{}: {} of {}{why}", row.version, row.compiled, self.stacks)
        });
        rows.collect::<Vec<_>>().join("; ")
    }

    /// Returns true if cores were tried, and none of them compiles a stack.
    pub fn compiles_nothing(&self) -> bool {
        self.stacks > 0 && !self.rows.is_empty() && self.rows.iter().all(|row| row.compiled == 0)
    }

    /// Returns true if the summary is worth showing: not everything compiles, or several cores were tried.
    pub fn is_notable(&self) -> bool {
        self.rows.len() > 1 || self.rows.iter().any(|row| row.compiled < self.stacks)
    }
}

/// The cores that may be tried.
pub(super) struct TrialScope<'a> {
    /// The core to begin with, if the person named one.
    pub wanted: Option<&'a str>,
    /// True if other cores are tried when the first does not compile everything.
    pub others: bool,
    /// True if cores may be downloaded.
    pub install: bool,
}

/// Compiles the stacks of the working tree with several cores. `config` is the configuration; its core is ignored.
///
/// # Errors
/// The working tree cannot be read, or the run was interrupted.
pub(super) async fn try_cores(
    run: &RunContext,
    repository: &Repository,
    config: &Config,
    scope: &TrialScope<'_>,
) -> Result<CoreTrials, UserError> {
    let mut cores = Cores::find(run, scope).await;
    let first = cores.first.clone();
    let mut search = CoreSearch::new(cores.versions.clone(), &first);
    let mut found = CoreTrials::default();
    let mut rows: BTreeMap<String, (CoreRow, Vec<UserError>)> = BTreeMap::new();
    // Notes are off, because each core would repeat the warnings about packages without a lock.
    let quiet = RunContext {
        notes: Arc::new(NoNotes),
        ..run.clone()
    };
    while let Some(version) = search.next() {
        run.check_interrupted()?;
        if let Err(failure) = cores.prepare(run, &version).await {
            cores.untried(&version, &failure.message);
            search.remove(&version);
            cores.drop_missing(&mut search);
            continue;
        }
        let mut config = config.clone();
        config.kcl.version = Some(version.clone());
        let workspace = OpenRevision::open_under(run, repository, &RevisionSpec::Worktree, &config)?;
        let stacks = spread(&workspace.layout.stacks);
        found.stacks = stacks.len();
        found.all_stacks = workspace.layout.stacks.len();
        let compilers = Compilers::new(&quiet, &config).for_past_revision();
        let built = compilers.for_revision(&workspace).specs(&stacks).await;
        run.check_interrupted()?;
        let (trial, row, failures) = examine(&version, &stacks, built);
        rows.insert(version, (row, failures));
        search.trials.push(trial);
        if !scope.others {
            break;
        }
    }
    let place = |version: &str| cores.versions.iter().position(|known| known == version);
    if let Some(best) = search.best() {
        found.chosen = Some(best.version.clone());
        if let Some((_, failures)) = rows.get_mut(&best.version) {
            found.failures = std::mem::take(failures);
        }
    }
    found.rows = rows.into_values().map(|(row, _)| row).collect();
    found.rows.sort_by_key(|row| place(&row.version));
    // Cores that could not be tried matter only if no tried core compiles all stacks.
    let has_all = found.rows.iter().any(|row| row.compiled == found.stacks);
    found.untried = cores.into_untried(&first).filter(|_| !has_all);
    Ok(found)
}

/// The cores that can be used on this machine.
struct Cores {
    /// The versions, newest first.
    versions: Vec<String>,
    /// The version to begin with.
    first: String,
    installed: BTreeSet<String>,
    /// Versions that cannot be used.
    missing: BTreeSet<String>,
    why: Option<String>,
}

impl Cores {
    /// Finds the cores. With `KONVERGE_KCL` these are the core that it names and the installed ones, because all others
    /// would be refused afterwards. Otherwise these are the installed cores and those that can be installed.
    async fn find(run: &RunContext, scope: &TrialScope<'_>) -> Self {
        let checkout = run.checkout();
        let mut installed = BTreeSet::new();
        let folder = kcl::data_folder();
        for version in kcl::versions() {
            if let Ok(folder) = &folder
                && Toolchain::installed(folder, version, &checkout).await.is_ok()
            {
                installed.insert(version.to_owned());
            }
        }
        let named = Toolchain::of_environment(&checkout).await;
        let why = match &named {
            Some(Ok(core)) => {
                installed.insert(core.version.clone());
                Some(format!(
                    "KONVERGE_KCL names {}; unset it to try others",
                    core.version
                ))
            }
            Some(Err(error)) => Some(chain(error)),
            None if !scope.install => Some("they are not installed, and `--no-install` was given".to_owned()),
            None if run.var(variables::KONVERGE_OFFLINE).is_some() => {
                Some("they are not installed, and KONVERGE_OFFLINE is set".to_owned())
            }
            None => None,
        };
        let own = named.as_ref().and_then(|named| named.as_ref().ok());
        let own = own.map(|core| core.version.as_str());
        let mut cores = Self {
            first: scope.wanted.or(own).unwrap_or(kcl::DEFAULT_VERSION).to_owned(),
            versions: kcl::versions().into_iter().map(str::to_owned).collect(),
            installed,
            missing: BTreeSet::new(),
            why,
        };
        if let Some(Ok(core)) = named
            && !cores.versions.contains(&core.version)
        {
            cores.versions.insert(0, core.version);
        }
        if cores.why.is_some() {
            let (kept, missing) = cores
                .versions
                .drain(..)
                .partition(|version| cores.installed.contains(version));
            cores.versions = kept;
            cores.missing = Vec::into_iter(missing).collect();
        }
        cores
    }

    /// Installs a core that is missing.
    async fn prepare(&self, run: &RunContext, version: &str) -> Result<(), UserError> {
        if self.installed.contains(version) {
            return Ok(());
        }
        run.notes.info(&format!("installing the KCL core {version}"));
        let options = InstallOptions {
            checkout: run.checkout(),
            ..InstallOptions::default()
        };
        kcl::install(version, &options, &mut |_| {}).await?;
        Ok(())
    }

    fn untried(&mut self, version: &str, why: &str) {
        self.missing.insert(version.to_owned());
        self.why.get_or_insert_with(|| why.to_owned());
    }

    /// Gives up all cores that are not installed: after one failed download the next would fail, too.
    fn drop_missing(&mut self, search: &mut CoreSearch) {
        for version in self
            .versions
            .iter()
            .filter(|version| !self.installed.contains(*version))
        {
            self.missing.insert(version.clone());
            search.remove(version);
        }
    }

    /// Returns the cores that could not be tried, the recommended one first, with the reason.
    fn into_untried(self, first: &str) -> Option<(Vec<String>, String)> {
        let mut versions: Vec<String> = self.missing.into_iter().collect();
        versions.sort_by_key(|version| version != first);
        Some((versions, self.why?)).filter(|(versions, _)| !versions.is_empty())
    }
}

/// Returns at most [`MOST_STACKS`] stacks, evenly spread over the sorted list.
fn spread(stacks: &[Stack]) -> Vec<Stack> {
    let step = stacks.len().div_ceil(MOST_STACKS).max(1);
    stacks.iter().step_by(step).cloned().collect()
}

fn examine(
    version: &str,
    stacks: &[Stack],
    built: Vec<Result<Spec, CompileError>>,
) -> (CoreTrial, CoreRow, Vec<UserError>) {
    let failed: Vec<(&StackId, CompileError)> = stacks
        .iter()
        .zip(built)
        .filter_map(|(stack, built)| Some((&stack.id, built.err()?)))
        .collect();
    let mut errors = BTreeSet::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut known = BTreeSet::new();
    let mut reaches = Vec::new();
    for (id, error) in &failed {
        let failure = &error.error;
        let reach = match &error.kcl {
            Some(error) => error.core_reach(),
            None => vec![CoreReach::Every],
        };
        let ranges = reach.iter().filter_map(|reach| match reach {
            CoreReach::Range(range) => Some(range.what),
            CoreReach::Every | CoreReach::Unknown => None,
        });
        let ranges: Vec<&str> = ranges.collect();
        let reason = ranges.first().map(|what| (*what).to_owned());
        let reason = reason.unwrap_or_else(|| first_line(id, failure));
        *reasons.entry(reason).or_default() += 1;
        known.extend(ranges);
        errors.extend(failure.causes.iter().map(|cause| cause.message.clone()));
        if failure.causes.is_empty() {
            errors.insert(failure.message.clone());
        }
        reaches.push(reach);
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    reasons.truncate(NAMED);
    let compiled = stacks.len() - failed.len();
    let trial = CoreTrial {
        version: version.to_owned(),
        compiled,
        reaches,
        errors: errors.len(),
    };
    let row = CoreRow {
        version: version.to_owned(),
        compiled,
        reasons,
        known,
    };
    (trial, row, join_failures(failed))
}

/// Returns the first line of an error, with the stack.
fn first_line(id: &StackId, failure: &UserError) -> String {
    let line = failure.message.lines().next().unwrap_or_default();
    let line = line.strip_prefix(&format!("stack {id}: ")).unwrap_or(line);
    line.chars().take(100).collect()
}
