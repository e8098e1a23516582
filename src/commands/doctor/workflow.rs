//! Checks the workflows that run Konverge: whether each job has the permissions that it needs. A token does
//! not tell what it may write, so the `permissions` in the workflow are read.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::finding::DoctorFinding;
use konverge_base::{
    error::{ErrorKind, UserError},
    variables::GITEA_TOKEN,
    yaml,
};
use konverge_ci::{
    job_conditions::may_start,
    workflow_coverage::{HOOK_PERMISSION, applies_on_schedule, grants, permissions, runs_konverge, steps},
};
use konverge_config::Config;
use konverge_forge::ForgeKind;

/// The folder with the workflows that a forge starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Folder {
    pub(super) forge: ForgeKind,
    pub(super) path: &'static str,
}

impl Folder {
    /// Finds the folder of workflows in a repository. `forge` is the forge of the job, if there is a job. Gitea reads
    /// GitHub's folder if it has none of its own. Outside of a job, a repository with only Gitea's folder counts as a
    /// Gitea repository.
    pub(super) fn find(root: &Path, forge: Option<ForgeKind>) -> Self {
        const GITEA: &str = ".gitea/workflows";
        const GITHUB: &str = ".github/workflows";
        let has = |path: &str| root.join(path).is_dir();
        let is_at_gitea = match forge {
            Some(forge) => forge == ForgeKind::Gitea,
            None => has(GITEA) && !has(GITHUB),
        };
        let forge = if is_at_gitea {
            ForgeKind::Gitea
        } else {
            ForgeKind::Github
        };
        let path = if is_at_gitea && has(GITEA) { GITEA } else { GITHUB };
        Self { forge, path }
    }

    /// Returns the workflow files, sorted by name.
    pub(super) fn files(self, root: &Path) -> Vec<PathBuf> {
        let mut files: Vec<_> = std::fs::read_dir(root.join(self.path))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ext| ext == "yml" || ext == "yaml"))
            .collect();
        files.sort();
        files
    }
}

/// The permissions that a job needs, by event.
const NEEDS: [(&str, &[(&str, &str)]); 3] = [
    (
        "pull_request",
        &[
            ("contents", "read"),
            ("pull-requests", "write"),
            ("statuses", "write"),
            ("checks", "write"),
        ],
    ),
    (
        "push",
        &[
            ("contents", "read"),
            ("pull-requests", "write"),
            ("statuses", "write"),
            ("issues", "write"),
        ],
    ),
    ("schedule", &[("contents", "read"), ("issues", "write")]),
];

/// Checks the workflows of a repository; `branch` is its default branch.
pub(super) fn findings(
    root: &Path,
    folder: Folder,
    branch: Option<&str>,
    config: Option<&Config>,
) -> Vec<DoctorFinding> {
    let has_hooks = config.is_some_and(|config| !config.apply.hooks.workflows.is_empty());
    let mut findings = Vec::new();
    for file in folder.files(root) {
        let name = format!(
            "{}/{}",
            folder.path,
            file.file_name().unwrap_or_default().to_string_lossy()
        );
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let Ok(workflow) = yaml::from_str::<Value>(&text) else {
            continue;
        };
        for (job, description) in workflow["jobs"].as_object().into_iter().flatten() {
            if runs_konverge(description) {
                findings.push(DoctorFinding::from_result(
                    format!("workflow job {job}"),
                    judge_job(&workflow, description, folder.forge, branch, has_hooks)
                        .map_err(|failure| failure.at(&name, None, None)),
                ));
            }
        }
    }
    if findings.is_empty() {
        findings.push(DoctorFinding::unused(
            "workflow",
            format!("no workflow in {} runs konverge", folder.path),
            match folder.forge {
                ForgeKind::Gitea => "`konverge init --forge gitea` writes a workflow",
                _ => "`konverge init` writes a workflow",
            },
        ));
    }
    findings
}

/// Returns true if a job only aggregates shards. Such a job only sets a status.
fn is_verdict(job: &Value) -> bool {
    let shard = |step: &Value| step["with"]["shard"].as_str().unwrap_or_default().to_owned();
    let run = |step: &Value| step["run"].as_str().unwrap_or_default().to_owned();
    steps(job).any(|step| shard(step).starts_with("all/") || run(step).contains("all/"))
}

fn judge_job(
    workflow: &Value,
    job: &Value,
    forge: ForgeKind,
    branch: Option<&str>,
    has_hooks: bool,
) -> Result<String, UserError> {
    let events = events(workflow);
    let wrong = |what: &str| UserError::new(ErrorKind::Github, what.to_owned());
    if events.contains("pull_request_target") {
        return Err(wrong(
            "pull_request_target is refused, because it gives the token of the repository to code from outside",
        )
        .hint("use `pull_request`; `docs/security.md` says how forks get a comment"));
    }
    let filter = &workflow["on"]["pull_request"];
    if filter.get("paths").is_some() || filter.get("paths-ignore").is_some() {
        return Err(wrong(
            "the workflow has a `paths:` filter: a required check that is skipped never reports",
        )
        .hint("remove the filter; Konverge finds what a change affects by itself"));
    }
    let starts = |event: &str| may_start(workflow, job, event);
    if let Some(branch) =
        branch.filter(|branch| starts("push") && !triggers_on(&workflow["on"]["push"], branch))
    {
        return Err(wrong(&format!(
            "a push to `{}`, the default branch, does not start it: no merge is applied",
            branch.escape_debug()
        ))
        .hint("name that branch in the workflow's `on: push: branches:`"));
    }
    // At Gitea the bot's token decides what a job may do, not `permissions`.
    if forge == ForgeKind::Gitea {
        return judge_token(workflow, job);
    }
    let mut needed: BTreeSet<_> = NEEDS
        .iter()
        .filter(|(event, _)| starts(event))
        .flat_map(|(_, needs)| needs.iter().copied())
        .collect();
    let applies = starts("push") || applies_on_schedule(workflow, job);
    needed.extend((has_hooks && applies).then_some(HOOK_PERMISSION));
    if is_verdict(job) {
        needed.retain(|(key, _)| *key == "statuses");
    }
    let given = permissions(workflow, job);
    let lacking: Vec<_> = needed
        .iter()
        .filter(|(key, access)| !grants(given, key, access))
        .map(|(key, access)| format!("{key}: {access}"))
        .collect();
    if !lacking.is_empty() {
        return Err(
            wrong(&format!("its token lacks {}", lacking.join(", "))).hint(format!(
                "add `{}` to the job's `permissions`",
                lacking.join("`, `")
            )),
        );
    }
    let granted: Vec<_> = needed
        .iter()
        .map(|(key, access)| format!("{key}: {access}"))
        .collect();
    Ok(if granted.is_empty() {
        "its events need no permissions".to_owned()
    } else {
        format!("permissions OK: {}", granted.join(", "))
    })
}

/// Checks that a job of Gitea has the bot's token: the token of the job itself may not ask who may push.
fn judge_token(workflow: &Value, job: &Value) -> Result<String, UserError> {
    let places = steps(job).chain([job, workflow]);
    if places
        .into_iter()
        .any(|place| place["env"].get(GITEA_TOKEN).is_some())
    {
        return Ok(format!("it has {GITEA_TOKEN}"));
    }
    let what = format!("it has no {GITEA_TOKEN}: the token of a job may not ask who may push");
    Err(UserError::new(ErrorKind::Github, what).hint(format!(
        "add `env: {{{GITEA_TOKEN}: ${{{{ secrets.KONVERGE_TOKEN }}}}}}` to the step; docs/guides/gitea.md says what the token needs"
    )))
}

/// Returns true if a push to a branch passes the filters of an event. A pattern is assumed to match.
fn triggers_on(push: &Value, branch: &str) -> bool {
    let names = |key: &str| match &push[key] {
        Value::String(one) => vec![one.as_str()],
        many => many
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect(),
    };
    let is_it = |name: &&str| *name == branch;
    let may_be_it = |name: &&str| is_it(name) || name.contains(['*', '?', '+', '[', '!']);
    let (wanted, ignored) = (names("branches"), names("branches-ignore"));
    (wanted.is_empty() || wanted.iter().any(may_be_it)) && !ignored.iter().any(is_it)
}

fn events(workflow: &Value) -> BTreeSet<&str> {
    match &workflow["on"] {
        Value::String(event) => BTreeSet::from([event.as_str()]),
        Value::Array(events) => events.iter().filter_map(Value::as_str).collect(),
        Value::Object(events) => events.keys().map(String::as_str).collect(),
        _ => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{
        doctor::DoctorVerdict,
        init::{GITEA_WORKFLOW, WORKFLOW},
    };

    fn looked(text: &str) -> Vec<DoctorFinding> {
        looked_with(text, "version: 1\n")
    }

    fn looked_with(text: &str, config: &str) -> Vec<DoctorFinding> {
        let config = Config::parse(config).unwrap();
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::find(root.path(), None);
        write(root.path(), folder.path, text);
        findings(root.path(), folder, Some("main"), Some(&config))
    }

    fn write(root: &Path, folder: &str, text: &str) {
        std::fs::create_dir_all(root.join(folder)).unwrap();
        std::fs::write(root.join(folder).join("konverge.yml"), text).unwrap();
    }

    #[test]
    fn the_folder_is_that_which_the_forge_reads() {
        let root = tempfile::tempdir().unwrap();
        let found = |forge| {
            let Folder { forge, path } = Folder::find(root.path(), forge);
            (forge, path)
        };
        let (github, gitea) = (ForgeKind::Github, ForgeKind::Gitea);
        assert_eq!(
            found(Some(gitea)),
            (gitea, ".github/workflows"),
            "it has none of its own"
        );
        write(root.path(), ".gitea/workflows", "");
        assert_eq!(found(None), (gitea, ".gitea/workflows"));
        write(root.path(), ".github/workflows", "");
        assert_eq!(found(None), (github, ".github/workflows"));
        assert_eq!(found(Some(gitea)), (gitea, ".gitea/workflows"));
        assert_eq!(found(Some(github)), (github, ".github/workflows"));
    }

    #[test]
    fn a_job_of_gitea_needs_the_bots_token() {
        let looked = |text: &str| {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), ".gitea/workflows", text);
            let folder = Folder::find(root.path(), Some(ForgeKind::Gitea));
            findings(root.path(), folder, Some("main"), None)
        };
        let found = looked(GITEA_WORKFLOW);
        assert_eq!(found.len(), 3, "{found:?}");
        let is_well = |finding: &DoctorFinding| finding.verdict == DoctorVerdict::Ok;
        assert!(found.iter().all(is_well), "{found:?}");
        let found = looked(&GITEA_WORKFLOW.replace("GITEA_TOKEN", "TOKEN"));
        assert!(!found.iter().any(is_well), "{found:?}");
        assert!(found[0].says.contains("GITEA_TOKEN"), "{found:?}");
        let found = looked("jobs: {}\n");
        assert!(found[0].fix[0].contains("--forge gitea"), "{found:?}");
    }

    #[test]
    fn the_workflow_that_init_writes_is_well() {
        let found = looked(WORKFLOW);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found.iter().all(|finding| finding.verdict == DoctorVerdict::Ok),
            "{found:?}"
        );
        assert!(found[2].says.contains("issues: write"), "{found:?}");
    }

    #[test]
    fn a_push_that_nobody_hears_is_told() {
        for (filter, says) in [
            ("branches: [master]", true),
            ("branches: [\"release/**\"]", false),
            ("branches: main", false),
            ("branches-ignore: [main]", true),
            ("tags: [v1]", false),
        ] {
            let found = looked(&WORKFLOW.replace("branches: [main]", filter));
            let told: Vec<_> = found
                .iter()
                .filter(|f| f.says.contains("no merge is applied"))
                .collect();
            assert_eq!(told.len(), usize::from(says), "{filter}: {found:?}");
        }
    }

    #[test]
    fn a_condition_without_the_name_of_an_event_starts_with_each() {
        for condition in [
            "github.ref == 'refs/heads/main'",
            "github.event_name != 'pull_request'",
        ] {
            let found = looked(&format!(
                "on: {{push: {{branches: [main]}}, pull_request: {{}}}}\njobs:\n  apply:\n    if: {condition}\n    permissions: {{contents: read}}\n    steps: [{{run: konverge ci}}]\n"
            ));
            assert!(found[0].says.contains("issues: write"), "{condition}: {found:?}");
            let of_preview = found[0].says.contains("checks: write");
            assert_eq!(of_preview, condition.contains("ref"), "{condition}: {found:?}");
        }
    }

    #[test]
    fn what_a_job_lacks_is_named() {
        let found = looked(&WORKFLOW.replace(
            "      statuses: write # konverge/preview, the check to require\n",
            "",
        ));
        assert_eq!(found[0].verdict, DoctorVerdict::Missing);
        assert!(
            found[0].says.ends_with("its token lacks statuses: write"),
            "{}",
            found[0].says
        );
        assert_eq!(found[1].verdict, DoctorVerdict::Ok);
    }

    #[test]
    fn workflows_around_an_apply_need_a_permission_of_the_job_that_applies() {
        let hooks = "apply: {hooks: {workflows: [{when: post, stacks: '**', workflow: smoke.yml}]}}";
        let found = looked_with(WORKFLOW, hooks);
        let verdicts: Vec<_> = found.iter().map(|finding| finding.verdict).collect();
        let (ok, missing) = (DoctorVerdict::Ok, DoctorVerdict::Missing);
        assert_eq!(
            verdicts,
            [ok, missing, ok],
            "the job that applies alone: {found:?}"
        );
        assert!(
            found[1].says.ends_with("its token lacks actions: write"),
            "{found:?}"
        );
        let fixes = found[1].fix.join("\n");
        assert!(
            fixes.contains("add `actions: write` to the job's `permissions`"),
            "{fixes}"
        );
        let scheduled = "on: schedule\njobs:\n  rollouts:\n    env: {KONVERGE_ON_SCHEDULE: apply}\n    permissions: {contents: read, issues: write}\n    steps: [{run: konverge ci}]\n";
        let found = looked_with(scheduled, hooks);
        assert!(
            found[0].says.ends_with("its token lacks actions: write"),
            "{found:?}"
        );
        let drift = looked_with(&scheduled.replace("apply}", "drift}"), hooks);
        assert_eq!(drift[0].verdict, ok, "{drift:?}");
        let granted = WORKFLOW.replace("issues: write", "issues: write\n      actions: write");
        let found = looked_with(&granted, hooks);
        assert!(found.iter().all(|finding| finding.verdict == ok), "{found:?}");
    }

    #[test]
    fn a_preview_that_is_dealt_out_is_known() {
        let found = looked(
            "on: pull_request\njobs:\n  shared:\n    uses: konverge/konverge/.github/workflows/preview-shards.yml@v1\n    permissions: {contents: read}\n  verdict:\n    permissions: {statuses: write}\n    steps:\n      - uses: konverge/konverge@v1\n        with: {shard: all/8}\n",
        );
        assert!(
            found[0]
                .says
                .contains("lacks checks: write, pull-requests: write"),
            "{found:?}"
        );
        assert_eq!(found[1].verdict, DoctorVerdict::Ok, "{found:?}");
        let ours = looked(include_str!("../../../.github/workflows/preview-shards.yml"));
        assert_eq!(ours.len(), 2, "{ours:?}");
        assert!(
            ours.iter().all(|finding| finding.verdict == DoctorVerdict::Ok),
            "{ours:?}"
        );
    }

    #[test]
    fn traps_are_named() {
        let target = looked(&WORKFLOW.replace("  pull_request:\n", "  pull_request_target:\n"));
        assert!(target[0].says.contains("pull_request_target"), "{target:?}");
        let filtered =
            looked(&WORKFLOW.replace("  pull_request:\n", "  pull_request:\n    paths: [appops/**]\n"));
        assert!(filtered[0].says.contains("`paths:`"), "{filtered:?}");
        let none = looked("on: push\njobs: {}\n");
        assert_eq!(none[0].verdict, DoctorVerdict::Unused);
    }
}
