//! Reads the annotations of an object that declare a hook.

use serde_json::{Map, Value};

use super::{super::implicit_deps::service_account, error::HookError};
use konverge_base::{
    error::ErrorKind,
    model::{
        GroupKind,
        hook::{HOOK, HOOK_KEEP, HOOK_ON, HOOK_REVERSIBLE, HookRules, HookTime},
        spec::{Resource, RuntimeKind},
    },
};

/// A hook as its annotations declare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HookDeclaration {
    pub time: HookTime,
    pub always: bool,
    pub keeps_last: bool,
    pub reversible: bool,
}

impl HookDeclaration {
    /// Creates a hook that runs at `time`, with defaults for everything else.
    pub(super) fn new(time: HookTime) -> Self {
        Self {
            time,
            always: false,
            keeps_last: true,
            reversible: false,
        }
    }

    /// Reads the Konverge annotations of a resource; `None` if the resource has none.
    pub(super) fn read(resource: &Resource) -> Result<Option<Self>, HookError> {
        let Some(annotations) = annotations(resource) else {
            return Ok(None);
        };
        let is_own = |key: &&String| *key == HOOK || key.starts_with("konverge/hook-");
        let own: Vec<_> = annotations.keys().filter(is_own).collect();
        if own.is_empty() {
            return Ok(None);
        }
        let id = &resource.id;
        let known = [HOOK, HOOK_ON, HOOK_KEEP, HOOK_REVERSIBLE];
        if let Some(key) = own.iter().find(|key| !known.contains(&key.as_str())) {
            return Err(HookError::new(
                id,
                format!("`{id}`: `{}` is not an annotation of hooks", key.escape_debug()),
                "the annotations are `konverge/hook`, `konverge/hook-on`, `konverge/hook-keep` and `konverge/hook-reversible`",
            ));
        }
        let choose = |key: &'static str, choices: &[&'static str]| -> Result<Option<usize>, HookError> {
            let Some(value) = annotations.get(key) else {
                return Ok(None);
            };
            let at = choices.iter().position(|choice| value.as_str() == Some(choice));
            at.map(Some).ok_or_else(|| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let (value, choices) = (value.escape_debug(), choices.join("`, `"));
                HookError::new(
                    id,
                    format!("`{id}`: the annotation `{key}` is `{value}`; it must be one of `{choices}`"),
                    format!("write one of `{choices}`"),
                )
            })
        };
        let Some(time) = choose(HOOK, &HookTime::ALL.map(HookTime::word))? else {
            return Err(HookError::new(
                id,
                format!(
                    "`{id}` has the annotation `{}` and no `konverge/hook`",
                    own[0].escape_debug()
                ),
                "add `konverge/hook: pre`, `post`, `failed` or `pre-destroy`, or remove the annotation",
            ));
        };
        Ok(Some(Self {
            time: HookTime::ALL[time],
            always: choose(HOOK_ON, &["change", "always"])? == Some(1),
            keeps_last: choose(HOOK_KEEP, &["last", "none"])? != Some(1),
            reversible: choose(HOOK_REVERSIBLE, &["false", "true"])? == Some(1),
        }))
    }

    /// Checks that the Job can run as this hook.
    pub(super) fn check(self, job: &Resource, rules: &HookRules) -> Result<(), HookError> {
        let id = &job.id;
        let attributes = &job.attributes;
        let text = |key: &str| attributes.get(key).and_then(Value::as_str).unwrap_or_default();
        if GroupKind::from_attributes(attributes) != GroupKind::JOB {
            let kind = format!("{} {}", text("apiVersion"), text("kind"));
            return Err(HookError::new(
                id,
                format!(
                    "`{id}` is not a Job of `batch/v1` but `{}`: only a Job can be a hook",
                    kind.escape_debug()
                ),
                "move the annotation to a Job, or remove it; `dependsOn` orders other objects",
            ));
        }
        let spec = attributes.get("spec");
        let pod = spec.and_then(|spec| spec.get("template")?.get("spec"));
        let of_pod = |key: &str| pod.and_then(|pod| pod.get(key)?.as_str());
        let policy = of_pod("restartPolicy").unwrap_or_default();
        if !["Never", "OnFailure"].contains(&policy) {
            let policy = if policy.is_empty() { "(not set)" } else { policy };
            return Err(HookError::new(
                id,
                format!("the hook `{id}` has `restartPolicy: {}`", policy.escape_debug()),
                "set `spec.template.spec.restartPolicy` to `Never` or `OnFailure`: a hook has to end",
            ));
        }
        let is_suspended = spec.and_then(|spec| spec.get("suspend")?.as_bool());
        if is_suspended == Some(true) {
            let what = format!("the hook `{id}` has `suspend: true`, so it would never end");
            return Err(HookError::new(id, what, "remove `spec.suspend` from the Job"));
        }
        let account = pod.and_then(service_account).and_then(Value::as_str);
        let account = account.unwrap_or("default");
        let metadata = attributes.get("metadata");
        let namespace = metadata.and_then(|metadata| metadata.get("namespace")?.as_str());
        let whole = format!("{}/{account}", namespace.unwrap_or("default"));
        let is_listed = |listed: &String| *listed == account || *listed == whole;
        if rules.service_accounts.iter().any(is_listed) {
            return Ok(());
        }
        let account = account.escape_debug();
        let mut error = HookError::new(
            id,
            format!("the hook `{id}` uses the service account `{account}`, which hooks may not use"),
            format!(
                "add `{account}` to `apply.hooks.service_accounts` in konverge.yaml on the default branch, or use an account of that list"
            ),
        );
        error.error.kind = ErrorKind::Policy;
        Err(error)
    }
}

/// Returns the annotations of an object.
pub(super) fn annotations(resource: &Resource) -> Option<&Map<String, Value>> {
    let metadata = resource.attributes.get("metadata");
    let metadata = metadata.filter(|_| resource.runtime == RuntimeKind::Kubernetes);
    metadata?.get("annotations")?.as_object()
}
