//! What the workflows of the repository lack: stacks that no job applies, because the workflows limit their jobs by
//! `for-environment` and no job has the stack's; and the permission to start the workflows of `apply.hooks`.

use std::collections::BTreeSet;

use serde_json::Value;

use konverge_base::{
    model::{RepoPath, file_source::Source, stack::Stack},
    yaml,
};
use konverge_config::Config;
use konverge_run::{OpenRevision, RunContext};

/// The folder of the workflows.
const FOLDER: &str = ".github/workflows";

/// The most stacks that a warning names.
const NAMED: usize = 10;

/// The stacks that no job applies, each with its environment, if it has one. None, if a job applies all stacks or the
/// environments of a job cannot be determined.
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

/// The workflows of a revision. Those that are not YAML run nothing.
pub fn workflows(source: &dyn Source) -> Vec<Value> {
    let Some(folder) = RepoPath::normalize(FOLDER) else {
        return Vec::new();
    };
    let files = source.files().keys().filter(|path| path.is_within(&folder));
    let texts = files.filter_map(|path| source.read_path(path).ok().flatten());
    texts
        .filter_map(|bytes| yaml::from_str(&String::from_utf8_lossy(&bytes)).ok())
        .collect()
}

/// The jobs that apply, each with its workflow and its name.
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

/// The permission that starts the workflows of `apply.hooks`.
pub const HOOK_PERMISSION: (&str, &str) = ("actions", "write");

/// The jobs that apply and whose `permissions` do not let them start the workflows of `apply.hooks`. Where there are no
/// `permissions`, the setting of the repository decides, which is not known.
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

/// The permissions of a job: its own, or those of its workflow.
pub fn permissions<'a>(workflow: &'a Value, job: &'a Value) -> &'a Value {
    match &job["permissions"] {
        Value::Null => &workflow["permissions"],
        given => given,
    }
}

/// Returns true if `permissions` grant this access. Without any, the setting of the repository decides, which
/// is not read here.
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
pub(super) fn warn(run: &RunContext, config: &Config, side: &OpenRevision) {
    let workflows = workflows(side.source.as_ref());
    let uncovered = uncovered_stacks(config, &side.layout.stacks, &workflows);
    if let Some(text) = describe(&uncovered) {
        run.notes.note(&format!("warning: {text}"));
    }
    for job in jobs_without_hook_permission(config, &workflows) {
        let (key, access) = HOOK_PERMISSION;
        run.notes.note(&format!(
            "warning: the job `{}` cannot start the workflows of `apply.hooks.workflows`: add `{key}: {access}` to its `permissions`",
            job.escape_debug()
        ));
    }
}

/// One sentence about the stacks that no job applies.
pub fn describe(uncovered: &[String]) -> Option<String> {
    let more = match uncovered.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<_> = uncovered.iter().take(NAMED).map(String::as_str).collect();
    (!uncovered.is_empty()).then(|| {
        format!(
            "no job of the workflows applies {}{more}: each has `for-environment`, and none has the environment of these stacks",
            named.join(", ")
        )
    })
}

/// Returns true if a job runs `konverge ci`, by a step or through our reusable workflow for shards.
pub fn runs_konverge(job: &Value) -> bool {
    let shards = "konverge/konverge/.github/workflows/preview-shards.yml@";
    has_text(&job["uses"], |uses| uses.starts_with(shards)) || steps(job).any(is_konverge)
}

/// Returns true if a step runs `konverge ci`.
fn is_konverge(step: &Value) -> bool {
    has_text(&step["uses"], |uses| uses.starts_with("konverge/konverge@"))
        || has_text(&step["run"], |run| run.contains("konverge ci"))
}

fn has_text(value: &Value, is_it: impl Fn(&str) -> bool) -> bool {
    value.as_str().is_some_and(is_it)
}

/// The steps of a job.
pub fn steps(job: &Value) -> impl Iterator<Item = &Value> {
    job["steps"].as_array().into_iter().flatten()
}

/// Returns true if an event may start the job: the workflow has it, and the job's `if` names it, or there is none.
fn may_start(workflow: &Value, job: &Value, event: &str) -> bool {
    let is_heard = match &workflow["on"] {
        Value::String(only) => only == event,
        Value::Array(events) => events.iter().any(|one| one == event),
        Value::Object(events) => events.contains_key(event),
        _ => false,
    };
    let condition = job["if"].as_str().unwrap_or_default();
    // A job for one of several schedules has `github.event.schedule == '…'`.
    is_heard
        && (condition.is_empty()
            || condition.contains(&format!("'{event}'"))
            || (event == "schedule" && condition.contains("github.event.schedule")))
}

/// Returns true if a job applies on a schedule (`KONVERGE_ON_SCHEDULE: apply`); otherwise it checks for drift then.
pub fn applies_on_schedule(workflow: &Value, job: &Value) -> bool {
    scheduled_applies(workflow, job).next().is_some()
}

/// The steps of a job that apply on a schedule.
fn scheduled_applies<'a>(workflow: &Value, job: &'a Value) -> impl Iterator<Item = &'a Value> {
    let says = |place: &Value| {
        let task = place["env"]["KONVERGE_ON_SCHEDULE"].as_str()?;
        Some(task.trim() == "apply")
    };
    // The variable of a step hides that of its job, which hides that of the workflow.
    let outer = says(job).or_else(|| says(workflow)).unwrap_or(false);
    let is_heard = may_start(workflow, job, "schedule");
    steps(job).filter(move |step| is_heard && is_konverge(step) && says(step).unwrap_or(outer))
}

/// The environments that a job applies; `None` if it applies all, or if they cannot be determined.
fn limits(workflow: &Value, job: &Value) -> Option<Vec<String>> {
    let applying: Vec<_> = match may_start(workflow, job, "push") {
        true => steps(job).filter(|step| is_konverge(step)).collect(),
        false => scheduled_applies(workflow, job).collect(),
    };
    let limits = applying.iter().map(|step| limits_of(workflow, job, step));
    let limits: Vec<_> = limits.collect::<Option<_>>()?;
    (!limits.is_empty()).then(|| limits.concat())
}

/// The environments that a step applies; `None` if it applies all, or if they cannot be determined.
fn limits_of(workflow: &Value, job: &Value, step: &Value) -> Option<Vec<String>> {
    let variable = |place: &Value| {
        place["env"]["KONVERGE_FOR_ENVIRONMENT"]
            .as_str()
            .map(str::to_owned)
    };
    let given = step["with"]["for-environment"].as_str().map(str::to_owned);
    let given = given.or_else(|| [step, job, workflow].into_iter().find_map(variable))?;
    let Some(expression) = given
        .trim()
        .strip_prefix("${{")
        .and_then(|rest| rest.strip_suffix("}}"))
    else {
        return (!given.trim().is_empty() && !given.contains("${{")).then(|| vec![given.trim().to_owned()]);
    };
    let key = expression.trim().strip_prefix("matrix.")?;
    let matrix = &job["strategy"]["matrix"];
    let included = matrix["include"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| &entry[key]);
    let values = matrix[key].as_array().into_iter().flatten().chain(included);
    let values: Vec<_> = values
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect();
    (!values.is_empty()).then_some(values)
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
            named_by: NamedBy::Names,
            project_folder: folder.parent().unwrap(),
            manifest: folder.child("stack.yaml"),
            folder,
            compile: Ok(CompileSetup::default()),
            cluster: None,
            kubeconfig: None,
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
