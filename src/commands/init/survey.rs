//! Examines a repository before Konverge is set up: its stacks, its Kusion version, its folder, and the
//! clusters that this machine knows.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{apps::AppSurvey, package_layout::PackageLayout};
use konverge_base::{
    model::{
        RepoPath,
        file_source::Source,
        stack::{LayoutRules, SettingsOrder},
    },
    variables, yaml,
};
use konverge_repo::konfig::{Layout, PackageKind};
use konverge_run::RunContext;

/// The parts of the repository that `init` found.
pub(super) struct Survey {
    /// The stacks, read with the detected order of settings files.
    pub layout: Layout,
    /// The Kusion version that matches the settings files.
    pub order: SettingsOrder,
    /// The folder of the monorepo, if it is not the root of the repository.
    pub folder: Option<RepoPath>,
    /// The version of the core that a `kcl.mod` names, if it can be installed.
    pub named_core: Option<String>,
    /// The packages that are stacks without a `stack.yaml`.
    pub packages: PackageLayout,
    /// A version of KCL that a `kcl.mod` names and that cannot be installed.
    pub unknown_core: Option<String>,
    /// The contexts of the kubeconfig, the current one first.
    pub contexts: Vec<String>,
    /// The stacks of AppConfigurations.
    pub apps: AppSurvey,
}

/// Examines the files that git knows.
///
/// # Errors
/// A file cannot be read.
pub(super) fn take(
    run: &RunContext,
    files: &std::sync::Arc<dyn Source>,
) -> Result<Survey, konverge_base::error::UserError> {
    let first = Layout::read(files, SettingsOrder::default())?;
    let order = order(&first, files.as_ref());
    let packages = if first.stacks.is_empty() && first.left_out.is_empty() {
        PackageLayout::find(files)?
    } else {
        PackageLayout::default()
    };
    let rules = LayoutRules {
        include: packages.include.clone(),
        ..LayoutRules::from(order)
    };
    let layout = Layout::read(files, rules)?;
    let named = named_cores(&layout, files.as_ref());
    Ok(Survey {
        folder: folder(&layout, files.as_ref()),
        named_core: named.iter().find(is_known).cloned(),
        packages,
        unknown_core: named.into_iter().find(|version| !is_known(&version)),
        contexts: contexts(run),
        apps: AppSurvey::take(&layout, files.as_ref()),
        layout,
        order,
    })
}

/// Detects the version of Kusion: v0.9.1 wrote a kubeconfig into `stack.yaml`; v0.7 needs both settings files in every
/// stack.
fn order(layout: &Layout, files: &dyn Source) -> SettingsOrder {
    let has = |folder: &RepoPath, name: &str| {
        folder
            .join(name)
            .is_some_and(|path| files.files().contains_key(&path))
    };
    let all_have = |name: &str| layout.stacks.iter().all(|stack| has(&stack.folder, name));
    if layout.stacks.iter().any(|stack| stack.kubeconfig.is_some()) {
        SettingsOrder::V091
    } else if !layout.stacks.is_empty() && all_have("kcl.yaml") && all_have("ci-test/settings.yaml") {
        SettingsOrder::V07
    } else {
        SettingsOrder::V090
    }
}

/// Returns the folder of the monorepo, if it is not the root: the folder with a `kcl.mod` that contains every project
/// and every other `kcl.mod`. A project's own `kcl.mod` is no candidate, because other projects may be added beside it.
fn folder(layout: &Layout, files: &dyn Source) -> Option<RepoPath> {
    let modules = files.files().keys().filter(|path| path.file_name() == "kcl.mod");
    let modules: BTreeSet<_> = modules.filter_map(RepoPath::parent).collect();
    let projects: BTreeSet<_> = layout.stacks.iter().map(|stack| &stack.project_folder).collect();
    let shared = modules
        .iter()
        .chain(projects.iter().copied())
        .cloned()
        .reduce(|shared, path| {
            let mut above = shared.ancestors();
            above.find(|above| path.is_within(above)).unwrap_or_default()
        })?;
    let is_above = |folder: &RepoPath| !projects.iter().any(|project| folder.is_within(project));
    let mut above = shared.ancestors();
    let found = above.find(|above| modules.contains(above) && is_above(above));
    found.filter(|folder| !folder.is_root())
}

/// Returns the versions of KCL in the `kcl.mod` files: `edition`, or `kclvm_version` until 2023. The version of the
/// whole monorepo comes before that of a single project. Vendored packages are ignored, because they say nothing about
/// the repository.
fn named_cores(layout: &Layout, files: &dyn Source) -> Vec<String> {
    let vendored = |path: &RepoPath| {
        let mut packages = layout.packages.iter();
        packages.any(|(folder, kind)| *kind == PackageKind::Vendored && path.is_within(folder))
    };
    let modules = files.files().keys().filter(|path| path.file_name() == "kcl.mod");
    let mut modules: Vec<_> = modules.filter(|path| !vendored(path)).collect();
    modules.sort_by_key(|path| path.as_str().matches('/').count());
    let named = modules.into_iter().filter_map(|path| {
        let text = files.read_path(path).ok()??;
        let table: toml::Table = std::str::from_utf8(&text).ok()?.parse().ok()?;
        let word = |section: &str, key: &str| table.get(section)?.get(key)?.as_str();
        let version = word("package", "edition").or_else(|| word("expected", "kclvm_version"))?;
        // `kcl mod init` wrote the edition 0.0.1 with every core, so it says nothing.
        let version = Some(version.trim_start_matches('v')).filter(|version| *version != "0.0.1")?;
        version
            .starts_with(|first: char| first.is_ascii_digit())
            .then(|| version.to_owned())
    });
    named.collect()
}

fn is_known(version: &&String) -> bool {
    konverge_kcl::versions().contains(&version.as_str())
}

/// Returns the names of the contexts that kubectl would offer.
pub(super) fn contexts(run: &RunContext) -> Vec<String> {
    let file = match run.var(variables::KUBECONFIG) {
        Some(list) => list.split(':').find(|path| !path.is_empty()).map(PathBuf::from),
        None => run
            .var(variables::HOME)
            .map(|home| Path::new(home).join(".kube/config")),
    };
    let Some(text) = file.and_then(|file| std::fs::read_to_string(file).ok()) else {
        return Vec::new();
    };
    let Ok(config) = yaml::from_str::<serde_json::Value>(&text) else {
        return Vec::new();
    };
    let current = config["current-context"].as_str().unwrap_or_default().to_owned();
    let all = config["contexts"].as_array().into_iter().flatten();
    let mut names: Vec<String> = all
        .filter_map(|context| context["name"].as_str().map(str::to_owned))
        .collect();
    names.sort_by_key(|name| (*name != current, name.clone()));
    names.dedup();
    names
}
