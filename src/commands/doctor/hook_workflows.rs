//! Checks the workflows of `apply.hooks.workflows`: whether an apply can start them, and find their runs again.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use super::{DoctorFinding, workflow::Folder};
use konverge_base::{
    error::{ErrorKind, UserError},
    yaml,
};
use konverge_config::Config;

/// The inputs that an apply sends.
const INPUTS: [&str; 3] = ["stack", "commit", "digest"];

/// The `run-name` that a hook workflow needs. After an apply was killed, the next one finds the workflow run by this
/// title.
const RUN_NAME: &str = "run-name: ${{ inputs.stack }} ${{ inputs.digest }}";

/// Returns a finding for each workflow.
pub(super) fn findings(root: &Path, folder: Folder, config: &Config) -> Vec<DoctorFinding> {
    let hooks = config.apply.hooks.workflows.iter();
    let files: BTreeSet<_> = hooks.map(|hook| hook.workflow.as_str()).collect();
    let check = |file: &&str| {
        let text = std::fs::read_to_string(root.join(folder.path).join(file)).ok();
        let says =
            check(text.as_deref()).map(|()| "it can be started, and its runs are found again".to_owned());
        let says = says.map_err(|failure| failure.at(format!("{}/{file}", folder.path), None, None));
        DoctorFinding::from_result(format!("hook workflow {file}"), says)
    };
    files.iter().map(check).collect()
}

fn check(text: Option<&str>) -> Result<(), UserError> {
    let wrong = |what: String| UserError::new(ErrorKind::Github, what);
    let text = text.ok_or_else(|| {
        wrong("`apply.hooks.workflows` names this file, which does not exist".to_owned())
            .hint("add the workflow on the default branch, or remove it from `apply.hooks.workflows`")
    })?;
    let workflow: Value = yaml::from_str(text).map_err(|error| {
        wrong(format!("it is not YAML: {error}"))
            .hint("correct the YAML: until then the forge cannot start the workflow")
    })?;
    let needs = "`on: workflow_dispatch` needs the inputs `stack`, `commit` and `digest`";
    let dispatch = match &workflow["on"] {
        Value::Object(events) => events.get("workflow_dispatch"),
        _ => None,
    };
    let inputs = dispatch.map(|event| &event["inputs"]);
    let lacking = INPUTS
        .iter()
        .find(|input| inputs.is_none_or(|inputs| inputs.get(input).is_none()));
    if let Some(input) = lacking {
        return Err(wrong(format!("it has no input `{input}`, so it cannot be started")).hint(needs));
    }
    let title = workflow["run-name"].as_str().unwrap_or_default();
    match ["inputs.stack", "inputs.digest"]
        .iter()
        .find(|name| !title.contains(**name))
    {
        None => Ok(()),
        Some(name) => Err(wrong(format!(
            "its `run-name` does not have `{name}`: after a kill nobody knows whether the workflow ran"
        ))
        .hint(format!("write `{RUN_NAME}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::DoctorVerdict;

    const WELL: &str = "run-name: ${{ inputs.stack }} ${{ inputs.digest }}\non:\n  workflow_dispatch:\n    inputs:\n      stack: {required: true}\n      commit: {required: true}\n      digest: {required: true}\njobs: {}\n";

    fn found(text: Option<&str>) -> DoctorFinding {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::find(root.path(), None);
        let files = root.path().join(folder.path);
        std::fs::create_dir_all(&files).unwrap();
        if let Some(text) = text {
            std::fs::write(files.join("smoke.yml"), text).unwrap();
        }
        let hook = |when: &str| format!("{{when: {when}, stacks: '**', workflow: smoke.yml}}");
        let hooks = [hook("pre"), hook("post")].join(", ");
        let config = Config::parse(&format!("apply: {{hooks: {{workflows: [{hooks}]}}}}")).unwrap();
        let mut found = findings(root.path(), folder, &config);
        assert_eq!(found.len(), 1, "one file is one workflow: {found:?}");
        found.remove(0)
    }

    #[test]
    fn what_a_hook_workflow_lacks_is_named_with_its_remedy() {
        assert_eq!(found(Some(WELL)).verdict, DoctorVerdict::Ok);
        for (text, says, fix) in [
            (None, "which does not exist", "add the workflow"),
            (Some("a: [".to_owned()), "not YAML", "correct the YAML"),
            (
                Some("on: push\n".to_owned()),
                "no input `stack`",
                "workflow_dispatch",
            ),
            (
                Some("on: workflow_dispatch\n".to_owned()),
                "no input `stack`",
                "inputs",
            ),
            (
                Some(WELL.replace("      commit: {required: true}\n", "")),
                "no input `commit`",
                "inputs",
            ),
            (
                Some(WELL.replace(" ${{ inputs.digest }}", "")),
                "`inputs.digest`",
                RUN_NAME,
            ),
            (Some(WELL.replace("run-name", "name")), "`inputs.stack`", RUN_NAME),
        ] {
            let found = found(text.as_deref());
            assert_eq!(found.verdict, DoctorVerdict::Missing, "{text:?}");
            assert!(found.says.contains(says), "{text:?}: {}", found.says);
            let fixes = found.fix.join("\n");
            assert!(fixes.contains(fix), "{text:?}: {fixes}");
        }
    }
}
