//! Writes the files of `init`: `konverge.yaml` and the workflow. No file is overwritten.

use std::{collections::BTreeMap, path::Path};

use super::{
    answers::{JobForge, NamedContext, STEP, Setup, scalar},
    core_trials::CoreTrials,
    environments,
    survey::Survey,
};
use konverge_base::{
    checkout::{self, Existing, WrittenFile},
    error::{ErrorKind, UserError},
    model::{ClusterName, RepoPath, stack::SettingsOrder},
};
use konverge_config::{Config, FILE_NAME};

/// The configuration to write; placeholders are in braces.
const CONFIG: &str = include_str!("konverge.yaml");

/// The workflow to write, with a placeholder for the applied branch; the example monorepo has the same.
pub const WORKFLOW: &str = include_str!("workflow.yml");

/// The workflow for jobs of Gitea.
pub const GITEA_WORKFLOW: &str = include_str!("gitea-workflow.yml");

/// The jobs of GitLab as a component, with inputs for what differs.
const GITLAB_COMPONENT: &str = include_str!("../../../templates/konverge.yml");

/// The inputs of the component that must not become inputs of the pipeline. Whoever starts a pipeline sets its inputs,
/// and would so choose what runs with the variables of the project.
const GITLAB_LITERALS: [&str; 4] = ["image", "folder", "preview-stage", "apply-stage"];

/// The line of the configuration without a store.
const STORE: &str = "  # url: s3://my-bucket/konverge\n";

/// The lines of the configuration where the clusters are written.
const CLUSTERS: &str = "# clusters:\n{clusters}";

/// The placeholder of the branch.
const BRANCHES: &str = "branches: [main]";

/// The path of the workflow.
const WORKFLOW_PATH: &str = ".github/workflows/konverge.yml";

/// The path of the workflow at Gitea.
const GITEA_PATH: &str = ".gitea/workflows/konverge.yml";

/// The path of the pipeline at GitLab, which has one file for all jobs.
const GITLAB_PATH: &str = ".gitlab-ci.yml";

/// The maximum number of kubeconfig contexts that are offered.
const CONTEXTS: usize = 10;

/// Writes both files; the configuration names the core that fits best.
pub(super) fn write(
    root: &Path,
    branch: &str,
    survey: &Survey,
    cores: &CoreTrials,
    setup: &Setup,
) -> Result<Vec<(&'static str, WrittenFile)>, UserError> {
    let config = config_text(survey, cores, setup);
    let (path, workflow) = match setup.forge {
        JobForge::Github => (WORKFLOW_PATH, workflow(WORKFLOW, branch, survey, setup)),
        JobForge::Gitea => (GITEA_PATH, workflow(GITEA_WORKFLOW, branch, survey, setup)),
        JobForge::Gitlab => (GITLAB_PATH, pipeline(survey)),
    };
    [(FILE_NAME, &config), (path, &workflow)]
        .into_iter()
        .map(|(path, text)| Ok((path, write_new(root, path, text)?)))
        .collect()
}

/// Returns the text of a workflow.
fn workflow(template: &str, branch: &str, survey: &Survey, setup: &Setup) -> String {
    let workflow = template.replace(BRANCHES, &format!("branches: [{}]", scalar(branch)));
    let mut workflow = setup.workflow(&workflow);
    if let Some(folder) = &survey.folder {
        workflow = in_folder(&workflow, folder);
    }
    environments::workflow(&workflow, &setup.environments)
}

/// Returns the text of GitLab's pipeline: the component with its defaults in place of its inputs. It finds the branch
/// by itself.
fn pipeline(survey: &Survey) -> String {
    let mut text = String::new();
    let mut defaults = BTreeMap::new();
    let mut literal = None;
    for line in GITLAB_COMPONENT.lines() {
        let name = line.strip_prefix("    ").and_then(|line| line.strip_suffix(':'));
        let is_end = line == "---";
        if is_end || name.is_some_and(|name| !name.starts_with(' ')) {
            literal = name.filter(|name| !is_end && GITLAB_LITERALS.contains(name));
        }
        match literal {
            Some(name) => {
                if let Some(value) = line.strip_prefix("      default: ") {
                    defaults.insert(name, value);
                }
            }
            None => text += &format!("{line}\n"),
        }
    }
    if let Some(folder) = &survey.folder {
        // GitLab expands variables in this value, so `$` is escaped.
        let place = format!("$CI_PROJECT_DIR/{}", folder.as_str().replace('$', "$$"));
        text = text.replace("$CI_PROJECT_DIR/$[[ inputs.folder ]]", &scalar(&place));
    }
    for (name, value) in defaults {
        text = text.replace(&format!("$[[ inputs.{name} ]]"), value);
    }
    text
}

/// Returns the text of `konverge.yaml`.
pub(super) fn config_text(survey: &Survey, cores: &CoreTrials, setup: &Setup) -> String {
    let core = cores.chosen.as_deref().unwrap_or(Config::default_core());
    let tried = match (cores.is_notable(), &cores.chosen) {
        (true, _) => format!("# `konverge init` tried: {}.\n", cores.summary()),
        (false, None) => "# `konverge init` tried no core: this is the recommended one.\n".to_owned(),
        (false, Some(_)) => String::new(),
    };
    let config = match &setup.store {
        Some(url) => CONFIG.replace(STORE, &format!("  url: {}\n", scalar(url))),
        None => CONFIG.to_owned(),
    };
    config
        .replace("{id}", &uuid::Uuid::new_v4().to_string())
        .replace("{include}", &include(&survey.packages.include))
        .replace("{tried}", &tried)
        .replace("{core}", core)
        .replace("{settings}", settings(survey.order))
        .replace(CLUSTERS, &clusters(&survey.contexts, setup.cluster.as_ref()))
        .replace("{production}", &environments::production(&survey.layout))
        .replace("{stacks}", &stacks(survey, &setup.environments))
}

/// Returns the key `include` for the folders of packages that are stacks.
fn include(globs: &[String]) -> String {
    if globs.is_empty() {
        return String::new();
    }
    let globs: String = globs
        .iter()
        .map(|glob| format!("  - {}\n", scalar(glob)))
        .collect();
    format!(
        "# Folders with a `kcl.mod` that are stacks without a `stack.yaml`; the folder above is the project.\ninclude:\n{globs}\n"
    )
}

fn settings(order: SettingsOrder) -> &'static str {
    match order {
        SettingsOrder::V07 => {
            "  # The Kusion version whose rules for kcl.yaml and ci-test/settings.yaml apply.\n  settings: v0.7\n"
        }
        SettingsOrder::V091 => "  # The Kusion version whose rules for kcl.yaml apply.\n  settings: v0.9.1\n",
        SettingsOrder::V090 => "",
    }
}

/// Returns the key `clusters`: the cluster that a person named, or else the contexts of the kubeconfig in comments, for
/// a person to choose from.
fn clusters(contexts: &[String], named: Option<&NamedContext>) -> String {
    if let Some(NamedContext { name, context }) = named {
        return format!(
            "clusters:\n  {}:\n    context: {}\n",
            scalar(name.as_str()),
            scalar(context)
        );
    }
    format!("# clusters:\n{}", offered_clusters(contexts))
}

fn offered_clusters(contexts: &[String]) -> String {
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

/// Returns the rules for stacks, in comments unless all stacks use one workspace of another name.
fn stacks(survey: &Survey, environments: &[String]) -> String {
    let rules = environments::order(&survey.layout) + &environments::rules(environments, &survey.layout);
    let has_rules = rules.lines().any(|line| line.starts_with("  - "));
    match survey.apps.only_workspace() {
        Some(name) => format!(
            "stacks:\n  - match: '**'\n    workspace: {}\n{rules}",
            scalar(name)
        ),
        None if has_rules => format!("stacks:\n{rules}"),
        None if !rules.is_empty() => format!("# stacks:\n{rules}"),
        None => "# stacks:\n#   - match: appops/*/prod\n#     cluster: prod\n#     after: [appops/*/dev]\n"
            .to_owned(),
    }
}

/// Adapts the workflow for a monorepo in a subfolder of its repository.
fn in_folder(workflow: &str, folder: &RepoPath) -> String {
    let line = format!("          working-directory: {}\n", scalar(folder.as_str()));
    let of_gitea = "      - uses: https://github.com/konverge/konverge@v0\n";
    if workflow.contains(of_gitea) {
        return workflow.replace(of_gitea, &format!("{of_gitea}        with:\n{line}"));
    }
    let inputs = "        with:\n          kubeconfig:";
    if workflow.contains(inputs) {
        return workflow.replace(inputs, &format!("        with:\n{line}          kubeconfig:"));
    }
    let with = format!("{STEP}        with:\n{line}");
    workflow.replace(STEP, &with).replace(
        "        # with: { environment: production } #",
        "          # environment: production #",
    )
}

fn write_new(root: &Path, path: &str, text: &str) -> Result<WrittenFile, UserError> {
    checkout::write(root, path.as_ref(), text.as_bytes(), Existing::Keep).map_err(|error| {
        UserError::from_error(ErrorKind::Config, error)
            .context(format!("could not write {}", root.join(path).display()))
            .hint("nothing was overwritten; make the folder writable and run `konverge init` again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::init::{apps, package_layout::PackageLayout};
    use konverge_repo::konfig::Layout;

    fn survey() -> Survey {
        Survey {
            layout: Layout::default(),
            order: SettingsOrder::V090,
            folder: None,
            named_core: None,
            packages: PackageLayout::default(),
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
        let first = write(
            folder.path(),
            "main",
            &survey(),
            &CoreTrials::default(),
            &Setup::default(),
        )
        .unwrap();
        assert!(first.iter().all(|(_, written)| *written == WrittenFile::Created));
        let config = Config::parse(&read(folder.path(), FILE_NAME)).unwrap();
        assert!(config.state.id.is_some());
        std::fs::write(folder.path().join(FILE_NAME), "mine").unwrap();
        let second = write(
            folder.path(),
            "main",
            &survey(),
            &CoreTrials::default(),
            &Setup::default(),
        )
        .unwrap();
        assert!(second.iter().all(|(_, written)| *written == WrittenFile::Kept));
        assert_eq!(read(folder.path(), FILE_NAME), "mine");
    }

    #[test]
    fn merges_into_whichever_branch_is_the_default_are_applied() {
        for branch in ["master", "no", "1.0", "rel:ease", "feature/x"] {
            let folder = tempfile::tempdir().unwrap();
            write(
                folder.path(),
                branch,
                &survey(),
                &CoreTrials::default(),
                &Setup::default(),
            )
            .unwrap();
            let text = read(folder.path(), WORKFLOW_PATH);
            let workflow: serde_json::Value = konverge_base::yaml::from_str(&text).unwrap();
            assert_eq!(workflow["on"]["push"]["branches"], serde_json::json!([branch]));
        }
    }

    #[test]
    fn the_workflow_of_gitea_has_the_same_jobs_in_its_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup {
            forge: JobForge::Gitea,
            ..Setup::default()
        };
        let survey = Survey {
            folder: RepoPath::normalize("platform/konfig"),
            ..survey()
        };
        let cores = CoreTrials::default();
        write(folder.path(), "trunk", &survey, &cores, &setup).unwrap();
        assert!(!folder.path().join(WORKFLOW_PATH).exists());
        let workflow: serde_json::Value =
            konverge_base::yaml::from_str(&read(folder.path(), GITEA_PATH)).unwrap();
        assert_eq!(workflow["on"]["push"]["branches"], serde_json::json!(["trunk"]));
        let jobs = workflow["jobs"].as_object().unwrap();
        assert_eq!(jobs.keys().collect::<Vec<_>>(), ["preview", "apply", "drift"]);
        for job in jobs.values() {
            let step = &job["steps"][1];
            assert_eq!(step["with"]["working-directory"], "platform/konfig");
            assert_eq!(step["env"]["GITEA_TOKEN"], "${{ secrets.KONVERGE_TOKEN }}");
        }
        for lacking in [
            Setup {
                environments: vec!["prod".to_owned()],
                ..setup.clone()
            },
            Setup {
                cloud: Some(super::super::JobCloud::Aws),
                ..setup
            },
        ] {
            assert!(lacking.check().is_err());
        }
    }

    #[test]
    fn the_pipeline_of_gitlab_runs_in_the_folder_of_the_monorepo() {
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup {
            forge: JobForge::Gitlab,
            ..Setup::default()
        };
        let survey = Survey {
            folder: RepoPath::normalize("platform/konfig"),
            ..survey()
        };
        write(folder.path(), "trunk", &survey, &CoreTrials::default(), &setup).unwrap();
        assert!(!folder.path().join(WORKFLOW_PATH).exists());
        let documents = konverge_base::yaml::documents(&read(folder.path(), GITLAB_PATH)).unwrap();
        let [head, jobs] = documents.as_slice() else {
            panic!("{documents:?}")
        };
        // Whoever starts a pipeline sets these inputs, and must not choose what runs, nor where.
        let inputs = head["spec"]["inputs"].as_object().unwrap();
        assert_eq!(inputs.keys().collect::<Vec<_>>(), ["approve", "reason", "stack"]);
        let (all, stages) = (&jobs[".konverge"], ["konverge-preview", "konverge-apply"]);
        assert_eq!(all["image"]["name"], "ghcr.io/konverge/konverge:0");
        assert_eq!(
            all["variables"]["KONVERGE_REPO"],
            "$CI_PROJECT_DIR/platform/konfig"
        );
        assert_eq!(stages.map(|job| &jobs[job]["stage"]), ["test", "deploy"]);
        let (rules, texts) = (
            &jobs["konverge-apply"]["rules"][1]["if"],
            &jobs["konverge-apply"]["variables"],
        );
        assert!(rules.as_str().unwrap().contains("$[[ inputs.stack ]]"), "{rules}");
        assert_eq!(texts["KONVERGE_REASON"]["value"], "$[[ inputs.reason ]]");
        for job in ["konverge-preview", "konverge-apply", "konverge-drift"] {
            assert_eq!(jobs[job]["extends"], ".konverge", "{job}");
        }
        for lacking in [
            Setup {
                environments: vec!["prod".to_owned()],
                ..setup.clone()
            },
            Setup {
                cloud: Some(super::super::JobCloud::Aws),
                ..setup
            },
        ] {
            assert!(lacking.check().is_err());
        }
    }

    #[test]
    fn no_name_of_a_folder_is_yaml_or_a_variable_in_the_pipeline_of_gitlab() {
        let of = |folder: Option<&str>| {
            let survey = Survey {
                folder: folder.and_then(RepoPath::normalize),
                ..survey()
            };
            let text = pipeline(&survey);
            let [_, jobs] = konverge_base::yaml::documents(&text).unwrap().try_into().unwrap();
            let jobs: serde_json::Value = jobs;
            jobs[".konverge"]["variables"]["KONVERGE_REPO"].clone()
        };
        assert_eq!(of(None), "$CI_PROJECT_DIR/.");
        assert_eq!(of(Some("a: b #c")), "$CI_PROJECT_DIR/a: b #c");
        assert_eq!(of(Some("$CI_JOB_TOKEN")), "$CI_PROJECT_DIR/$$CI_JOB_TOKEN");
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
        write(
            folder.path(),
            "main",
            &survey,
            &CoreTrials::default(),
            &Setup::default(),
        )
        .unwrap();
        let workflow: serde_json::Value =
            konverge_base::yaml::from_str(&read(folder.path(), WORKFLOW_PATH)).unwrap();
        for job in ["preview", "apply", "drift"] {
            let steps = workflow["jobs"][job]["steps"].as_array().unwrap();
            assert_eq!(steps[1]["with"]["working-directory"], "platform/konfig", "{job}");
        }
        let text = read(folder.path(), FILE_NAME);
        let config = Config::parse(&text).unwrap();
        assert_eq!(config.kcl.settings, SettingsOrder::V07);
        assert!(config.clusters.is_empty(), "they are offered, not taken");
        // Without the comment signs the lines are valid clusters.
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
