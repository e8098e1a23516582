//! Finds gaps in the workflows of the repository: stacks that no job applies, because each job is limited to another
//! environment by `for-environment`, and jobs without the permission to start the workflows of `apply.hooks`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{job::Job, job_conditions::may_start};
use konverge_base::{
    model::{RepoPath, file_source::Source, stack::Stack, text::first_few},
    variables, yaml,
};
use konverge_config::Config;
use konverge_run::OpenRevision;

/// The value of `for-environment` for a job that applies all stacks. The action sets it if the input is missing.
pub const EVERY_ENVIRONMENT: &str = "*";

/// The maximum number of stacks that a warning lists.
const NAMED: usize = 10;

/// Returns the stacks that no job applies, each with its environment if it has one. Empty if a job applies all stacks,
/// or if the environments of a job cannot be determined.
pub fn uncovered_stacks(config: &Config, stacks: &[Stack], workflows: &[Value]) -> Vec<String> {
    let mut covered = BTreeSet::new();
    for (workflow, _, job) in apply_jobs(workflows) {
        match limits(workflow, job) {
            Some(environments) => covered.extend(environments),
            None => return Vec::new(),
        }
    }
    if covered.is_empty() {
        return Vec::new();
    }
    let environment = |stack: &Stack| config.for_stack(stack).environment;
    let uncovered = stacks.iter().filter_map(|stack| match environment(stack) {
        None => Some(format!("{} (no environment)", stack.id)),
        Some(name) if !covered.contains(&name) => Some(format!("{} ({})", stack.id, name.escape_debug())),
        Some(_) => None,
    });
    uncovered.collect()
}

/// Reads the workflows in a folder of a revision. A file that is not YAML is skipped.
fn workflows(source: &dyn Source, folder: &str) -> Vec<Value> {
    let Some(folder) = RepoPath::normalize(folder) else {
        return Vec::new();
    };
    let files = source.files().keys().filter(|path| path.is_within(&folder));
    let texts = files.filter_map(|path| source.read_path(path).ok().flatten());
    texts
        .filter_map(|bytes| yaml::from_str(&String::from_utf8_lossy(&bytes)).ok())
        .collect()
}

/// Returns the jobs that apply stacks, each with its workflow and its name.
fn apply_jobs(workflows: &[Value]) -> impl Iterator<Item = (&Value, &str, &Value)> {
    let jobs = workflows.iter().flat_map(|workflow| {
        let jobs = workflow["jobs"].as_object().into_iter().flatten();
        jobs.map(move |(name, job)| (workflow, name.as_str(), job))
    });
    jobs.filter(|(workflow, _, job)| {
        let applies = may_start(workflow, job, "push") || applies_on_schedule(workflow, job);
        runs_konverge(job) && applies
    })
}

/// The permission that a job needs to start the workflows of `apply.hooks`.
pub const HOOK_PERMISSION: (&str, &str) = ("actions", "write");

/// Returns the jobs that apply stacks but may not start the workflows of `apply.hooks`, by their `permissions`. A job
/// without `permissions` is left out, because the setting of the repository decides, which is unknown here.
fn jobs_without_hook_permission(config: &Config, workflows: &[Value]) -> Vec<String> {
    if config.apply.hooks.workflows.is_empty() {
        return Vec::new();
    }
    let (key, access) = HOOK_PERMISSION;
    let lacking = apply_jobs(workflows).filter(|(workflow, _, job)| {
        let given = permissions(workflow, job);
        !given.is_null() && !grants(given, key, access)
    });
    lacking.map(|(_, name, _)| name.to_owned()).collect()
}

/// Returns the permissions of a job: its own, or else those of its workflow.
pub fn permissions<'a>(workflow: &'a Value, job: &'a Value) -> &'a Value {
    match &job["permissions"] {
        Value::Null => &workflow["permissions"],
        given => given,
    }
}

/// Returns true if `permissions` grant this access. False without `permissions`: then the setting of the repository
/// decides, which is not read here.
pub fn grants(permissions: &Value, key: &str, access: &str) -> bool {
    match permissions {
        Value::String(all) => all == "write-all" || (all == "read-all" && access == "read"),
        Value::Object(keys) => {
            let given = keys.get(key).and_then(Value::as_str);
            given == Some("write") || given == Some(access)
        }
        _ => false,
    }
}

/// Warns about the stacks that no job applies, and about jobs that cannot start the workflows of `apply.hooks`.
pub(super) fn warn(job: &Job, config: &Config, revision: &OpenRevision) {
    // Forges with other job files, such as GitLab, are not checked.
    let Ok(folder) = job.runner.workflow_folder() else {
        return;
    };
    let run = &job.run;
    let workflows = workflows(revision.source.as_ref(), folder);
    let uncovered = uncovered_stacks(config, &revision.layout.stacks, &workflows);
    if let Some(text) = describe(&uncovered) {
        run.notes.warning(&text);
    }
    if let Some(text) = describe_without_environment(&jobs_without_environment(&workflows)) {
        run.notes.warning(&text);
    }
    for job in jobs_without_hook_permission(config, &workflows) {
        let (key, access) = HOOK_PERMISSION;
        run.notes.warning(&format!(
            "the job `{}` cannot start the workflows of `apply.hooks.workflows`: add `{key}: {access}` to its `permissions`",
            job.escape_debug()
        ));
    }
}

/// Returns one sentence about the stacks that no job applies; `None` if there are none.
pub fn describe(uncovered: &[String]) -> Option<String> {
    let named = first_few(uncovered.iter().map(String::as_str), NAMED);
    (!uncovered.is_empty()).then(|| {
        format!(
            "no job of the workflows applies {named}: each has `for-environment`, and none has the environment of these stacks"
        )
    })
}

/// Returns true if a job runs `konverge ci`, in a step or through Konverge's reusable workflow for shards.
pub fn runs_konverge(job: &Value) -> bool {
    let shards = "konverge/konverge/.github/workflows/preview-shards.yml@";
    has_text(&job["uses"], |uses| uses.starts_with(shards)) || steps(job).any(is_konverge)
}

/// Returns true if a step runs `konverge ci`.
fn is_konverge(step: &Value) -> bool {
    has_text(&step["uses"], |uses| {
        action_path(uses).starts_with("konverge/konverge@")
    }) || has_text(&step["run"], |run| run.contains("konverge ci"))
}

/// Returns the action that a step uses, without the host: a workflow of Gitea has the whole URL.
fn action_path(uses: &str) -> &str {
    let address = uses.split_once("://").map(|(_, address)| address);
    let path = address.and_then(|address| address.split_once('/'));
    path.map_or(uses, |(_, path)| path)
}

fn has_text(value: &Value, is_it: impl Fn(&str) -> bool) -> bool {
    value.as_str().is_some_and(is_it)
}

/// Returns the steps of a job.
pub fn steps(job: &Value) -> impl Iterator<Item = &Value> {
    job["steps"].as_array().into_iter().flatten()
}

/// Returns true if a job applies on a schedule (`KONVERGE_ON_SCHEDULE: apply`). Otherwise it checks for drift on a
/// schedule.
pub fn applies_on_schedule(workflow: &Value, job: &Value) -> bool {
    scheduled_applies(workflow, job).next().is_some()
}

/// Returns the steps of a job that apply on a schedule.
fn scheduled_applies<'a>(workflow: &Value, job: &'a Value) -> impl Iterator<Item = &'a Value> {
    let says = |scope: &Value| {
        let task = scope["env"][variables::KONVERGE_ON_SCHEDULE].as_str()?;
        Some(task.trim() == "apply")
    };
    // A variable of a step overrides that of its job, which overrides that of the workflow.
    let outer = says(job).or_else(|| says(workflow)).unwrap_or(false);
    let is_heard = may_start(workflow, job, "schedule");
    steps(job).filter(move |step| is_heard && is_konverge(step) && says(step).unwrap_or(outer))
}

/// Returns the environments whose stacks a job applies; `None` if it applies all, or if they cannot be determined.
fn limits(workflow: &Value, job: &Value) -> Option<Vec<String>> {
    let applying: Vec<_> = if may_start(workflow, job, "push") {
        steps(job).filter(|step| is_konverge(step)).collect()
    } else {
        scheduled_applies(workflow, job).collect()
    };
    let limits = applying.iter().map(|step| limits_of(workflow, job, step));
    let limits: Vec<_> = limits.collect::<Option<_>>()?;
    (!limits.is_empty()).then(|| limits.concat())
}

/// Returns the environments whose stacks a step applies; `None` if it applies all, or if they cannot be determined.
fn limits_of(workflow: &Value, job: &Value, step: &Value) -> Option<Vec<String>> {
    let given = for_environment(workflow, job, step)?.trim();
    if let Some(key) = matrix_key(given) {
        return matrix_values(&job["strategy"]["matrix"], key);
    }
    let is_name = !given.is_empty() && given != EVERY_ENVIRONMENT && !given.contains("${{");
    is_name.then(|| vec![given.to_owned()])
}

/// Returns the `for-environment` of a step. A variable overrides the input, as in the action.
fn for_environment<'a>(workflow: &'a Value, job: &'a Value, step: &'a Value) -> Option<&'a str> {
    let scopes = [step, job, workflow].map(|scope| &scope["env"][variables::KONVERGE_FOR_ENVIRONMENT]);
    let mut given = scopes.into_iter().chain([&step["with"]["for-environment"]]);
    given.find_map(Value::as_str)
}

/// Returns `KEY` of a text `${{ matrix.KEY }}`.
fn matrix_key(given: &str) -> Option<&str> {
    let expression = given.trim().strip_prefix("${{")?.strip_suffix("}}")?;
    let key = expression.trim().strip_prefix("matrix.")?;
    let is_key = |c: char| c.is_alphanumeric() || "-_".contains(c);
    key.chars().all(is_key).then_some(key)
}

/// Returns the values of a key in a matrix; `None` if they cannot be determined.
fn matrix_values(matrix: &Value, key: &str) -> Option<Vec<String>> {
    let entries = |name: &str| matrix[name].as_array().into_iter().flatten();
    // An `exclude` entry with more keys excludes only some of the jobs with this value.
    let is_excluded = |value: &&Value| {
        let mut excluded = entries("exclude").filter_map(Value::as_object);
        excluded.any(|entry| entry.len() == 1 && entry.get(key) == Some(*value))
    };
    let included = entries("include").map(|entry| &entry[key]);
    let values = entries(key).filter(|value| !is_excluded(value)).chain(included);
    let values: Vec<_> = values
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect();
    (!values.is_empty()).then_some(values)
}

/// Returns the jobs whose `for-environment` is always empty because the matrix lacks the key, each with its text. Such
/// a job applies nothing, because an empty name is an error.
pub fn jobs_without_environment(workflows: &[Value]) -> Vec<String> {
    let lacking = apply_jobs(workflows).filter_map(|(workflow, name, job)| {
        let matrix = &job["strategy"]["matrix"];
        let is_known = |part: &Value| !part.is_string();
        if !is_known(matrix) || !is_known(&matrix["include"]) {
            return None;
        }
        let lacks = |key: &str| {
            let mut included = matrix["include"].as_array().into_iter().flatten();
            matrix.get(key).is_none() && !included.any(|entry| entry.get(key).is_some())
        };
        let mut given = steps(job).filter(|step| is_konverge(step));
        let empty = given.find_map(|step| {
            let text = for_environment(workflow, job, step)?.trim();
            (text.is_empty() || matrix_key(text).is_some_and(lacks)).then_some(text)
        })?;
        Some(format!("{} (`{}`)", name.escape_debug(), empty.escape_debug()))
    });
    lacking.collect()
}

/// Returns one sentence about jobs with an empty `for-environment`; `None` if there are none.
pub fn describe_without_environment(jobs: &[String]) -> Option<String> {
    (!jobs.is_empty()).then(|| {
        format!(
            "`for-environment` is always empty in the job {}, which therefore applies nothing",
            jobs.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::stack::{CompileSetup, NamedBy};

    fn stack(folder: &str) -> Stack {
        let folder = RepoPath::normalize(folder).unwrap();
        let id = folder.as_str().strip_prefix("appops/").unwrap();
        Stack {
            id: id.parse().unwrap(),
            names: id.parse().unwrap(),
            earlier_names: None,
            named_by: NamedBy::Names,
            project_folder: folder.parent().unwrap(),
            manifest: folder.child("stack.yaml"),
            folder,
            compile: Ok(CompileSetup::default()),
            cluster: None,
            kubeconfig: None,
            reads: std::collections::BTreeMap::new(),
        }
    }

    fn uncovered(workflow: &str) -> Vec<String> {
        let config = "stacks: [{match: 'appops/*/dev', environment: dev}, {match: 'appops/*/prod', environment: production}]";
        let stacks = [
            stack("appops/a/dev"),
            stack("appops/a/prod"),
            stack("appops/a/lab"),
        ];
        let workflow = yaml::from_str(workflow).unwrap();
        uncovered_stacks(&Config::parse(config).unwrap(), &stacks, &[workflow])
    }

    #[test]
    fn what_no_job_applies_is_named() {
        let matrix = |more: &str| {
            format!(
                "on: {{push: {{}}}}\njobs:\n  apply:\n    strategy: {{matrix: {{environment: [dev{more}]}}}}\n    steps:\n    - uses: konverge/konverge@v1\n      with: {{for-environment: '${{{{ matrix.environment }}}}'}}\n"
            )
        };
        assert_eq!(
            uncovered(&matrix("")),
            ["a/prod (production)", "a/lab (no environment)"]
        );
        assert_eq!(uncovered(&matrix(", production")), ["a/lab (no environment)"]);
        let all = matrix("") + "  rest:\n    steps:\n    - run: konverge ci\n";
        assert_eq!(uncovered(&all), [""; 0], "a job without the input applies all");
        let unknown = "on: push\njobs:\n  apply:\n    env: {KONVERGE_FOR_ENVIRONMENT: '${{ inputs.x }}'}\n    steps: [{run: konverge ci}]\n";
        assert_eq!(uncovered(unknown), [""; 0]);
        let fixed = "on: [push]\njobs:\n  apply:\n    env: {KONVERGE_FOR_ENVIRONMENT: dev}\n    steps: [{run: konverge ci}]\n  preview:\n    if: github.event_name == 'pull_request'\n    steps: [{run: konverge ci}]\n";
        assert_eq!(uncovered(fixed).len(), 2);
        assert_eq!(uncovered("on: push\njobs: {}\n"), [""; 0]);
    }

    /// A job for one environment, with this condition.
    fn dev(condition: &str) -> String {
        format!(
            "on: {{push: {{}}, pull_request: {{}}}}\njobs:\n  apply:\n    if: {condition}\n    env: {{KONVERGE_FOR_ENVIRONMENT: dev}}\n    steps: [{{run: konverge ci}}]\n"
        )
    }

    #[test]
    fn any_condition_that_lets_a_push_through_applies() {
        for condition in [
            "github.event_name == 'push'",
            "github.ref == 'refs/heads/main'",
            "github.event_name != 'pull_request'",
        ] {
            assert_eq!(uncovered(&dev(condition)).len(), 2, "{condition}");
            let rest = format!("  rest:\n    if: {condition}\n    steps: [{{run: konverge ci}}]\n");
            assert_eq!(uncovered(&(dev(condition) + &rest)), [""; 0], "{condition}");
        }
        let preview = "  preview:\n    if: github.event_name != 'push'\n    steps: [{run: konverge ci}]\n";
        let both = dev("github.ref == 'refs/heads/main'") + preview;
        assert_eq!(uncovered(&both).len(), 2, "a preview applies nothing");
        assert_eq!(uncovered(&dev("github.event_name == 'pull_request'")), [""; 0]);
    }

    #[test]
    fn what_a_matrix_excludes_is_not_applied() {
        let matrix = |more: &str| {
            format!(
                "on: push\njobs:\n  apply:\n    strategy: {{matrix: {{environment: [dev, production]{more}}}}}\n    steps: [{{uses: konverge/konverge@v1, with: {{for-environment: '${{{{ matrix.environment }}}}'}}}}]\n"
            )
        };
        let lab = "a/lab (no environment)";
        let prod = "a/prod (production)";
        for (more, expected) in [
            ("", vec![lab]),
            (", exclude: [{environment: production}]", vec![prod, lab]),
            (", exclude: [{environment: production, region: eu}]", vec![lab]),
            (
                ", exclude: [{environment: production}], include: [{environment: production}]",
                vec![lab],
            ),
        ] {
            assert_eq!(uncovered(&matrix(more)), expected, "{more}");
        }
    }

    #[test]
    fn an_environment_that_is_always_empty_is_named() {
        let named = |matrix: &str, given: &str| {
            let text = format!(
                "on: push\njobs:\n  apply:\n    strategy: {{matrix: {matrix}}}\n    steps: [{{uses: konverge/konverge@v1, with: {{for-environment: '{given}'}}}}]\n"
            );
            jobs_without_environment(&[yaml::from_str(&text).unwrap()])
        };
        let given = "${{ matrix.environment }}";
        for (matrix, given, expected) in [
            ("{environment: [dev]}", given, None),
            ("{include: [{environment: dev}]}", given, None),
            ("'${{ fromJSON(inputs.matrix) }}'", given, None),
            ("{environment: '${{ fromJSON(inputs.names) }}'}", given, None),
            ("{include: '${{ fromJSON(inputs.names) }}'}", given, None),
            ("{environment: [dev]}", "${{ inputs.x }}", None),
            ("{environment: [dev]}", "*", None),
            (
                "{environment: [dev]}",
                "${{ matrix.enviroment }}",
                Some("apply (`${{ matrix.enviroment }}`)"),
            ),
            (
                "{enviroment: [dev]}",
                given,
                Some("apply (`${{ matrix.environment }}`)"),
            ),
            ("{environment: [dev]}", "", Some("apply (``)")),
            ("null", given, Some("apply (`${{ matrix.environment }}`)")),
        ] {
            assert_eq!(
                named(matrix, given),
                expected.into_iter().collect::<Vec<_>>(),
                "{matrix} {given}"
            );
        }
    }

    #[test]
    fn a_job_that_cannot_start_the_workflows_of_hooks_is_named() {
        let hooks = "apply: {hooks: {workflows: [{when: post, stacks: '**', workflow: smoke.yml}]}}";
        let lacking = |config: &str, permissions: &str| {
            let jobs = "  apply:\n    steps: [{run: konverge ci}]\n  preview:\n    if: github.event_name == 'pull_request'\n    permissions: {}\n    steps: [{run: konverge ci}]\n";
            let workflow = yaml::from_str(&format!("on: push\n{permissions}jobs:\n{jobs}")).unwrap();
            jobs_without_hook_permission(&Config::parse(config).unwrap(), &[workflow])
        };
        for given in [
            "permissions: {contents: read}\n",
            "permissions: {actions: read}\n",
            "permissions: read-all\n",
        ] {
            assert_eq!(lacking(hooks, given), ["apply"], "{given}");
            assert_eq!(lacking("version: 1\n", given), [""; 0], "{given}");
        }
        for given in ["", "permissions: write-all\n", "permissions: {actions: write}\n"] {
            assert_eq!(lacking(hooks, given), [""; 0], "{given}");
        }
    }

    #[test]
    fn a_job_that_applies_on_a_schedule_applies() {
        let (dev, prod) = (
            "KONVERGE_FOR_ENVIRONMENT: dev",
            "KONVERGE_FOR_ENVIRONMENT: production",
        );
        let jobs = |task: &str| {
            format!(
                "on: {{push: {{}}, schedule: [{{cron: '* * * * *'}}]}}\njobs:\n  apply:\n    if: github.event_name == 'push'\n    env: {{{dev}}}\n    steps: [{{run: konverge ci}}]\n  rollouts:\n    if: github.event_name == 'schedule'\n    env: {{{prod}}}\n    steps: [{{run: konverge ci, env: {{KONVERGE_ON_SCHEDULE: {task}}}}}]\n"
            )
        };
        assert_eq!(uncovered(&jobs("apply")), ["a/lab (no environment)"]);
        assert_eq!(uncovered(&jobs("drift")).len(), 2);
        let one = "github.event.schedule == '* * * * *'";
        let by_time = jobs("apply").replace("github.event_name == 'schedule'", one);
        assert_eq!(uncovered(&by_time), ["a/lab (no environment)"]);

        // The environment is that of the step that applies, not that of the drift check before it.
        let two = jobs("apply").replace(
            "steps: [{run: konverge ci, env: {KONVERGE_ON_SCHEDULE: apply}}]",
            "steps: [{run: konverge ci, env: {KONVERGE_FOR_ENVIRONMENT: lab}}, {run: konverge ci, env: {KONVERGE_ON_SCHEDULE: apply}}]",
        );
        assert_eq!(uncovered(&two), ["a/lab (no environment)"]);
        let both = jobs("drift").replace(
            "    steps: [{run: konverge ci}]\n  rollouts",
            "    steps: [{run: konverge ci}, {run: konverge ci, env: {KONVERGE_FOR_ENVIRONMENT: production}}]\n  rollouts",
        );
        assert_eq!(
            uncovered(&both),
            ["a/lab (no environment)"],
            "a push applies with both steps"
        );

        let hooks = "apply: {hooks: {workflows: [{when: post, stacks: '**', workflow: smoke.yml}]}}";
        let lacking = |workflow: &str| {
            let workflow = yaml::from_str(workflow).unwrap();
            jobs_without_hook_permission(&Config::parse(hooks).unwrap(), &[workflow])
        };
        let (variable, ours) = (
            "env: {KONVERGE_ON_SCHEDULE: apply}",
            "steps: [{run: konverge ci}]",
        );
        for (workflow, job, steps) in [
            (
                "",
                "",
                "steps: [{run: konverge ci, env: {KONVERGE_ON_SCHEDULE: apply}}]",
            ),
            ("", variable, ours),
            (variable, "", ours),
        ] {
            let text = format!(
                "on: schedule\npermissions: {{contents: read}}\n{workflow}\njobs:\n  rollouts:\n    {job}\n    {steps}\n"
            );
            assert_eq!(lacking(&text), ["rollouts"], "{text}");
            assert_eq!(lacking(&text.replace("apply}", "drift}")), [""; 0], "{text}");
            assert_eq!(
                lacking(&text.replace("on: schedule", "on: workflow_dispatch")),
                [""; 0],
                "{text}"
            );
        }
        let hidden = "on: schedule\npermissions: {}\nenv: {KONVERGE_ON_SCHEDULE: apply}\njobs:\n  drift:\n    env: {KONVERGE_ON_SCHEDULE: drift}\n    steps: [{run: konverge ci}]\n";
        assert_eq!(lacking(hidden), [""; 0]);
    }
}
