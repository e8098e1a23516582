//! Reads the hook annotations of Argo CD and of Helm. Some have the same meaning in Konverge, others have none.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::declaration::{HookDeclaration, annotations};
use konverge_base::model::{
    GroupKind, ResourceId,
    hook::{HOOK, HookRules, HookTime},
    spec::Resource,
    text::first_few,
};

/// The hook annotations of another tool (Argo CD or Helm).
struct Dialect {
    tool: &'static str,
    /// The domain of the tool's annotations.
    domain: &'static str,
    hook: &'static str,
    policy: &'static str,
    weight: &'static str,
    /// The names of the tool's hook times that Konverge supports, each with the Konverge name.
    times: &'static [(&'static str, HookTime)],
    /// The tool's hook times at which an object is applied in the normal order, between the hooks before and those
    /// after.
    in_order: &'static [&'static str],
    /// Pairs of hook times that Konverge supports only together, as one of its own times.
    pairs: &'static [[&'static str; 2]],
    /// The tool's delete policies that delete a Job after it has ended.
    deletes: [&'static str; 2],
    /// The tool's delete policy that Konverge always follows.
    recreates: &'static str,
}

const ARGO_CD: Dialect = Dialect {
    tool: "Argo CD",
    domain: "argocd.argoproj.io/",
    hook: "argocd.argoproj.io/hook",
    policy: "argocd.argoproj.io/hook-delete-policy",
    weight: "argocd.argoproj.io/sync-wave",
    times: &[
        ("PreSync", HookTime::Pre),
        ("PostSync", HookTime::Post),
        ("SyncFail", HookTime::Failed),
        ("PreDelete", HookTime::PreDestroy),
    ],
    in_order: &["Sync"],
    pairs: &[],
    deletes: ["HookSucceeded", "HookFailed"],
    recreates: "BeforeHookCreation",
};

const HELM: Dialect = Dialect {
    tool: "Helm",
    domain: "helm.sh/",
    hook: "helm.sh/hook",
    policy: "helm.sh/hook-delete-policy",
    weight: "helm.sh/hook-weight",
    times: &[
        ("pre-install", HookTime::Pre),
        ("pre-upgrade", HookTime::Pre),
        ("post-install", HookTime::Post),
        ("post-upgrade", HookTime::Post),
        ("pre-delete", HookTime::PreDestroy),
    ],
    // `crd-install` is a hook of Helm 2. It creates CustomResourceDefinitions before everything else.
    in_order: &["crd-install"],
    pairs: &[["pre-install", "pre-upgrade"], ["post-install", "post-upgrade"]],
    deletes: ["hook-succeeded", "hook-failed"],
    recreates: "before-hook-creation",
};

/// The tool whose annotations make an object a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookSource {
    /// Konverge: the annotation `konverge/hook`.
    Own,
    /// Argo CD or Helm.
    Foreign,
}

/// The annotations that have no effect on their objects, each with its tool and these objects.
pub(super) type UnreadAnnotations = BTreeMap<(String, String), (&'static str, Vec<ResourceId>)>;

fn read_tools(rules: &HookRules) -> impl Iterator<Item = &'static Dialect> {
    let tools = [(rules.argocd, &ARGO_CD), (rules.helm, &HELM)];
    tools
        .into_iter()
        .filter(|(reads, _)| *reads)
        .map(|(_, tool)| tool)
}

/// Returns the tool whose annotations make an object a hook. Konverge reads the annotations of Argo CD before those of
/// Helm, as Argo CD does.
fn tool_of(annotations: &Map<String, Value>, rules: &HookRules) -> Option<&'static Dialect> {
    read_tools(rules).find(|tool| annotations.contains_key(tool.hook))
}

/// Collects the annotations of Argo CD and Helm that [`read`] does not report: those on a plain object, on a hook of
/// Konverge, and those of the tool that does not define the hook. `source` is the tool that makes the object a hook.
pub(super) fn collect_unread(
    resource: &Resource,
    rules: &HookRules,
    source: Option<HookSource>,
    unread: &mut UnreadAnnotations,
) {
    let Some(annotations) = annotations(resource) else {
        return;
    };
    let hook = tool_of(annotations, rules).filter(|_| source != Some(HookSource::Own));
    for tool in read_tools(rules) {
        let is_its_hook = hook.is_some_and(|hook| hook.tool == tool.tool);
        if is_its_hook && source.is_some() {
            continue;
        }
        for (key, value) in annotations.iter().filter(|(key, _)| key.starts_with(tool.domain)) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let is_named = is_its_hook && key == tool.hook;
            if is_named || (key == tool.weight && value.trim() == "0") {
                continue;
            }
            let entry = unread.entry((key.clone(), value));
            let (_, ids) = entry.or_insert_with(|| (tool.tool, Vec::new()));
            ids.push(resource.id.clone());
        }
    }
}

/// Returns the reason why an object is removed from its stack; `None` if it stays. An object is removed if its tool
/// creates it only at times that Konverge does not have: a normal apply would create it at the wrong time.
pub(super) fn why_left_out(resource: &Resource, rules: &HookRules) -> Option<String> {
    let annotations = annotations(resource)?;
    if annotations.contains_key(HOOK) {
        return None;
    }
    let dialect = tool_of(annotations, rules)?;
    let words = words(annotations, dialect.hook);
    let is_known = |word: &&str| {
        let mut times = dialect.times.iter().map(|(name, _)| name);
        times.any(|name| name == word) || dialect.in_order.contains(word)
    };
    (!words.is_empty() && !words.iter().any(is_known)).then(|| {
        format!(
            "`{}`: it is removed from the stack, and no apply creates it: Konverge has no time for `{}: {}` of {}",
            resource.id,
            dialect.hook,
            words.join(",").escape_debug(),
            dialect.tool
        )
    })
}

/// Returns the Konverge replacement for an annotation that has no effect here.
fn instead(key: &str, value: &str) -> &'static str {
    let is_kept = match key {
        "helm.sh/resource-policy" => value.trim() == "keep",
        "argocd.argoproj.io/sync-options" => {
            let mut options = value.split(',').map(str::trim);
            options.any(|option| matches!(option, "Prune=false" | "Delete=false"))
        }
        _ => false,
    };
    if is_kept {
        "write `konverge/keep: \"true\"`, or its object is deleted when it leaves the Spec"
    } else {
        "Konverge ignores it"
    }
}

/// Returns one note for each annotation, even if several objects have it.
pub(super) fn notes_of(unread: UnreadAnnotations) -> impl Iterator<Item = String> {
    unread.into_iter().map(|((key, value), (tool, ids))| {
        let named = first_few(ids.iter().map(|id| format!("`{id}`")), 1);
        format!(
            "{named}: `{}: {}` of {tool} is not understood: {}; `dependsOn` gives an order",
            key.escape_debug(),
            value.escape_debug(),
            instead(&key, &value),
        )
    })
}

/// Reads the annotations of the tool that makes an object a hook.
pub(super) fn read(
    resource: &Resource,
    rules: &HookRules,
    notes: &mut Vec<String>,
) -> Option<HookDeclaration> {
    let annotations = annotations(resource)?;
    let dialect = tool_of(annotations, rules)?;
    let mut note = |key: &str, value: &str, why: &str| {
        notes.push(format!(
            "`{}`: `{}: {}` of {} is not understood: {why}",
            resource.id,
            key.escape_debug(),
            value.escape_debug(),
            dialect.tool
        ));
    };
    let mut time = None;
    let times = words(annotations, dialect.hook);
    // Helm separates the first apply from later ones, which Konverge does not: one time of a pair alone gets a note.
    for [first, second] in dialect.pairs {
        let alone = match (times.contains(first), times.contains(second)) {
            (true, false) => first,
            (false, true) => second,
            _ => continue,
        };
        note(
            dialect.hook,
            alone,
            "Konverge does not distinguish the first apply from later ones, so the hook runs in all of them",
        );
    }
    for word in times {
        let known = dialect.times.iter().find(|(name, _)| *name == word);
        match (known, time) {
            (Some((_, found)), None) => time = Some(*found),
            (Some((_, found)), Some(first)) if *found == first => {}
            (Some(_), Some(first)) => {
                note(
                    dialect.hook,
                    word,
                    &format!("a Job can be a hook only once, and this one is `{first}` already"),
                );
            }
            (None, None) if dialect.in_order.contains(&word) => note(
                dialect.hook,
                word,
                "Konverge applies it as a normal object, after `pre` hooks and before `post` hooks, and only if it changes",
            ),
            (None, _) => note(dialect.hook, word, "Konverge cannot run a hook at this time"),
        }
    }
    // Without a time it is a normal object, and the notes above say why.
    let time = time?;
    if GroupKind::from_attributes(&resource.attributes) != GroupKind::JOB {
        note(
            dialect.hook,
            time.word(),
            "only a Job can be a hook, so this is a plain object",
        );
        return None;
    }
    let deletes = words(annotations, dialect.policy);
    let both = dialect.deletes.iter().all(|policy| deletes.contains(policy));
    for policy in deletes {
        match policy {
            _ if policy == dialect.recreates => {}
            _ if both && dialect.deletes.contains(&policy) => {}
            _ => note(dialect.policy, policy, "the last Job stays until the next run"),
        }
    }
    for weight in words(annotations, dialect.weight)
        .into_iter()
        .filter(|weight| *weight != "0")
    {
        note(
            dialect.weight,
            weight,
            "Konverge applies the objects that the Job refers to first, without this annotation; use `dependsOn` for other objects",
        );
    }
    let known = [dialect.hook, dialect.policy, dialect.weight];
    // These annotations remain: the tool reads them on a Job (such as `sync-options` and `resource-policy`), Konverge
    // does not.
    let others = annotations
        .iter()
        .filter(|(key, _)| key.starts_with(dialect.domain) && !known.contains(&key.as_str()));
    for (key, value) in others {
        let value = value.as_str().unwrap_or_default();
        note(key, value, instead(key, value));
    }
    Some(HookDeclaration {
        keeps_last: !both,
        ..HookDeclaration::new(time)
    })
}

/// Splits an annotation's value at commas.
fn words<'a>(annotations: &'a Map<String, Value>, key: &str) -> Vec<&'a str> {
    let text = annotations.get(key).and_then(Value::as_str).unwrap_or_default();
    text.split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect()
}
