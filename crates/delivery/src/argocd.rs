//! Reads the status of an Argo CD Application, and checks that it delivers the artifact of a stack.

use konverge_base::model::masked_value::object;
use serde_json::Value;

use super::progress::{DeliveryProblem, DeliveryProgress, is_empty, text};

/// The sync options with which Argo CD changes the objects of the artifact before it applies them.
const CHANGING_OPTIONS: [&str; 2] = ["Replace=true", "RespectIgnoreDifferences=true"];
/// The URL by which a destination names the cluster that Argo CD itself runs in.
const OWN_SERVER: &str = "https://kubernetes.default.svc";
const OWN_NAME: &str = "in-cluster";

/// Returns why an Application does not deliver the artifact; `None` if it does.
pub(super) fn problem(application: &Value, artifact: &str, tag: &str) -> Option<DeliveryProblem> {
    // Argo CD uses these keys instead of `source`, even if the hydrator is empty.
    for key in ["sources", "sourceHydrator"] {
        let other = &application["spec"][key];
        if !is_empty(other) || other.is_object() {
            return Some(DeliveryProblem::new(
                format!("it reads `spec.{key}`"),
                "remove this key and set `spec.source`: the artifact is the only source",
            ));
        }
    }
    let source = text(application, "/spec/source/repoURL");
    if source != artifact {
        return Some(DeliveryProblem::other_source(source, artifact));
    }
    let revision = text(application, "/spec/source/targetRevision");
    if revision != tag {
        return Some(DeliveryProblem::other_source(
            &format!("{source}:{revision}"),
            &format!("{artifact}:{tag}"),
        ));
    }
    if let Some(problem) = rendering_problem(&application["spec"]["source"]) {
        return Some(problem);
    }
    let options = application
        .pointer("/spec/syncPolicy/syncOptions")
        .and_then(Value::as_array);
    let has = |option: &str| options.is_some_and(|all| all.iter().any(|one| one == option));
    if !has("ServerSideApply=true") {
        return Some(DeliveryProblem::new(
            "its syncs do not use server-side apply, so a preview does not show what it writes",
            "set `ServerSideApply=true` under `spec.syncPolicy.syncOptions`",
        ));
    }
    let option = CHANGING_OPTIONS.into_iter().find(|option| has(option))?;
    Some(DeliveryProblem::new(
        format!("its syncs have `{option}`, so a preview does not show what they write"),
        "remove it from `spec.syncPolicy.syncOptions`",
    ))
}

/// Returns why an Application sends the objects to another cluster than the stack's; `None` if it does not. `is_own` is
/// true if Argo CD runs in the stack's cluster. `cluster` is its name in `konverge.yaml`, which an export may have used
/// as the destination.
pub(super) fn destination_problem(
    application: &Value,
    is_own: bool,
    cluster: Option<&str>,
) -> Option<DeliveryProblem> {
    let server = text(application, "/spec/destination/server").trim_end_matches('/');
    let name = text(application, "/spec/destination/name");
    let names_own = match (server, name) {
        (OWN_SERVER, "") | ("", OWN_NAME) => true,
        ("", "") => false,
        ("", name) => is_own && cluster == Some(name),
        _ => false,
    };
    if names_own == is_own {
        return None;
    }
    let remedy = if is_own {
        "set `spec.destination.server: https://kubernetes.default.svc`; or set `delivery.cluster` in konverge.yaml, if Argo CD runs in another cluster"
    } else {
        "set `spec.destination` to the cluster of the stack: `delivery.cluster` is that of Argo CD"
    };
    let destination = format!("{server}{name}").escape_debug().to_string();
    let what = format!("its destination `{destination}` is not the cluster of the stack");
    Some(DeliveryProblem::new(what, remedy))
}

/// Returns why a source changes the files of the artifact while it reads them; `None` if it does not.
fn rendering_problem(source: &Value) -> Option<DeliveryProblem> {
    for key in ["kustomize", "helm", "plugin", "chart"] {
        if !is_empty(&source[key]) {
            return Some(DeliveryProblem::new(
                format!("`spec.source.{key}` changes the objects"),
                "remove this key: the controller would apply something else than the reviewed objects",
            ));
        }
    }
    let path = text(source, "/path");
    if !matches!(path, "" | "." | "./") {
        return Some(DeliveryProblem::new(
            format!("it reads the folder `{}`", path.escape_debug()),
            "set `spec.source.path: .`: the artifact is read from its root",
        ));
    }
    // `konverge export argocd` writes these settings. Argo CD adds empty settings, which are ignored.
    let wanted = object([("recurse", true.into()), ("include", "manifests/*".into())]);
    let mut directory = source["directory"].as_object().cloned().unwrap_or_default();
    directory.retain(|_, setting| !is_empty(setting));
    (directory != wanted).then(|| {
        DeliveryProblem::new(
            "`spec.source.directory` does not read exactly the manifests of the artifact",
            "set `spec.source.directory: {recurse: true, include: manifests/*}`, and nothing else in it",
        )
    })
}

/// Returns true if Argo CD deletes objects that leave the artifact. Without automated sync, the person who syncs
/// decides.
pub(super) fn prunes(application: &Value) -> bool {
    match application.pointer("/spec/syncPolicy/automated") {
        Some(automated) if !automated.is_null() => automated["prune"] == true,
        _ => true,
    }
}

/// Returns how far Argo CD has applied an artifact.
pub(super) fn progress(application: &Value, digest: &str) -> DeliveryProgress {
    let status = |pointer: &str| text(application, &format!("/status{pointer}")).to_owned();
    let (sync, revision) = (status("/sync/status"), status("/sync/revision"));
    let (health, phase) = (status("/health/status"), status("/operationState/phase"));
    let operated = status("/operationState/syncResult/revision");
    let mut errors = Vec::new();
    if matches!(phase.as_str(), "Failed" | "Error") {
        let message = status("/operationState/message");
        let error = format!("its sync ended with {phase}: {message}");
        errors.push((operated == digest, error));
    }
    let conditions = application
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    for one in conditions.into_iter().flatten() {
        let (kind, message) = (text(one, "/type"), text(one, "/message"));
        if kind.ends_with("Error") {
            let is_ours = revision == digest || message.contains(digest);
            errors.push((is_ours, format!("{kind}: {message}")));
        }
    }
    // An error stays until Argo CD checks again: before the first push, it still reports that the artifact is missing.
    // So only errors about this digest count.
    if let Some((_, error)) = errors.iter().find(|(is_ours, _)| *is_ours) {
        return DeliveryProgress::Failed(error.clone());
    }
    let is_done = matches!(phase.as_str(), "" | "Succeeded");
    if revision == digest && sync == "Synced" && health == "Healthy" && is_done && errors.is_empty() {
        DeliveryProgress::Healthy
    } else {
        let [sync, health, revision] = [&sync, &health, &revision].map(|text| match text.as_str() {
            "" => "nothing",
            text => text,
        });
        let error = errors
            .first()
            .map(|(_, error)| format!("; {error}"))
            .unwrap_or_default();
        let message = format!("sync is {sync}, health is {health}, at {revision}{error}");
        DeliveryProgress::Waiting(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OURS: &str = "oci://r/acme/a";

    fn source() -> Value {
        let directory = json!({"recurse": true, "include": "manifests/*"});
        json!({"repoURL": OURS, "targetRevision": "live", "path": ".", "directory": directory})
    }

    fn application() -> Value {
        json!({
            "spec": {"source": source(), "syncPolicy": {"syncOptions": ["ServerSideApply=true"]}},
            "status": {
                "sync": {"status": "Synced", "revision": "sha256:1"},
                "health": {"status": "Healthy"},
                "operationState": {"phase": "Succeeded", "syncResult": {"revision": "sha256:1"}},
            },
        })
    }

    #[test]
    fn an_application_of_something_else_is_refused() {
        let with = |pointer: &str, value: Value| {
            let mut one = application();
            *one.pointer_mut(pointer).unwrap() = value;
            problem(&one, OURS, "live").map(|problem| problem.what)
        };
        assert_eq!(problem(&application(), OURS, "live"), None);
        for (pointer, value, said) in [
            (
                "/spec/source/repoURL",
                json!("https://github.com/x/y"),
                "https://github.com/x/y",
            ),
            ("/spec/source/targetRevision", json!("1.0"), "oci://r/acme/a:1.0"),
            ("/spec/syncPolicy/syncOptions", json!([]), "server-side apply"),
            ("/spec/source", json!(null), "it reads ``"),
        ] {
            let what = with(pointer, value).unwrap();
            assert!(what.contains(said), "{what}");
        }
        for option in CHANGING_OPTIONS {
            let what = with(
                "/spec/syncPolicy/syncOptions",
                json!(["ServerSideApply=true", option]),
            );
            assert!(what.unwrap().contains(option));
        }
        let mut automated = application();
        assert!(prunes(&automated));
        automated["spec"]["syncPolicy"]["automated"] = json!({});
        assert!(!prunes(&automated));
    }

    #[test]
    fn an_application_that_does_not_apply_the_files_as_they_are_is_refused() {
        let with = |key: &str, value: Value| {
            let mut one = application();
            one["spec"]["source"][key] = value;
            problem(&one, OURS, "live")
        };
        for (key, value) in [
            ("kustomize", json!({"namePrefix": "a-"})),
            ("helm", json!({"parameters": []})),
            ("plugin", json!({"name": "kcl"})),
            ("chart", json!("a")),
            ("path", json!("other")),
            ("path", json!("manifests")),
            ("directory", json!(null)),
            ("directory", json!({"recurse": true})),
            ("directory", json!({"recurse": true, "include": "*"})),
            (
                "directory",
                json!({"recurse": true, "include": "manifests/*", "exclude": "manifests/a.yaml"}),
            ),
            (
                "directory",
                json!({"recurse": true, "include": "manifests/*", "jsonnet": {"tlas": []}}),
            ),
        ] {
            let found = with(key, value.clone()).unwrap_or_else(|| panic!("{key}: {value}"));
            assert!(found.remedy.is_some(), "{key}");
        }
        for (key, value) in [
            ("path", json!("")),
            ("path", json!("./")),
            ("kustomize", json!({})),
        ] {
            assert_eq!(with(key, value), None, "{key}");
        }
        for (key, value) in [
            ("sources", json!([source(), {"repoURL": "https://example.com/x"}])),
            (
                "sourceHydrator",
                json!({"drySource": {"repoURL": "https://example.com/x"}}),
            ),
            ("sourceHydrator", json!({})),
        ] {
            let mut other = application();
            other["spec"][key] = value;
            let what = problem(&other, OURS, "live").unwrap().what;
            assert!(what.contains(&format!("spec.{key}")), "{what}");
        }
        let mut none = application();
        (none["spec"]["sources"], none["spec"]["sourceHydrator"]) = (json!([]), json!(null));
        assert_eq!(problem(&none, OURS, "live"), None);
    }

    #[test]
    fn the_destination_is_the_cluster_of_the_stack() {
        let own = [
            json!({"server": "https://kubernetes.default.svc", "namespace": "a"}),
            json!({"server": "https://kubernetes.default.svc/"}),
            json!({"name": "in-cluster"}),
        ];
        let others = [
            json!({"server": "https://west.example.com"}),
            json!({"name": "east"}),
        ];
        let found = |destination: &Value, is_own: bool| {
            let application = json!({"spec": {"destination": destination}});
            destination_problem(&application, is_own, Some("west")).map(|problem| problem.what)
        };
        for one in own {
            assert_eq!(found(&one, true), None, "{one}");
            assert!(found(&one, false).is_some(), "{one}");
        }
        for one in others {
            assert!(found(&one, true).is_some(), "{one}");
            assert_eq!(found(&one, false), None, "{one}");
        }
        // As the export writes it for a stack whose objects name their cluster.
        let named = json!({"name": "west"});
        assert_eq!((found(&named, true), found(&named, false)), (None, None));
        for nowhere in [
            json!({}),
            json!({"server": "https://kubernetes.default.svc", "name": "east"}),
        ] {
            assert!(found(&nowhere, true).is_some(), "{nowhere}");
        }
    }

    #[test]
    fn it_is_done_only_when_all_its_words_say_so() {
        let with = |pointer: &str, value: Value| {
            let mut one = application();
            *one.pointer_mut(pointer).unwrap() = value;
            progress(&one, "sha256:1")
        };
        assert_eq!(progress(&application(), "sha256:1"), DeliveryProgress::Healthy);
        for (pointer, value) in [
            ("/status/sync/revision", json!("sha256:0")),
            ("/status/sync/status", json!("OutOfSync")),
            ("/status/health/status", json!("Progressing")),
            ("/status/operationState/phase", json!("Running")),
            ("/status", json!(null)),
        ] {
            assert!(
                matches!(with(pointer, value), DeliveryProgress::Waiting(_)),
                "{pointer}"
            );
        }
        let failed = with("/status/operationState/phase", json!("Failed"));
        assert!(matches!(failed, DeliveryProgress::Failed(_)));
        // The failure of an earlier revision says nothing of this one.
        let mut earlier = application();
        earlier["status"]["operationState"] =
            json!({"phase": "Failed", "syncResult": {"revision": "sha256:0"}});
        assert!(matches!(
            progress(&earlier, "sha256:1"),
            DeliveryProgress::Waiting(_)
        ));
    }

    #[test]
    fn an_error_counts_only_if_it_is_of_the_digest() {
        let condition = |kind: &str, message: &str| json!([{"type": kind, "message": message}]);
        let missing = "oci://r/acme/a:live: not found";
        // As Argo CD leaves it before the first push, until its next look.
        let mut first = application();
        first["status"] = json!({
            "sync": {"status": "Unknown"},
            "health": {"status": "Healthy"},
            "conditions": condition("ComparisonError", missing),
        });
        // Somebody asked for a sync then.
        let mut synced = first.clone();
        synced["status"]["operationState"] =
            json!({"phase": "Error", "message": missing, "syncResult": {"revision": ""}});
        let mut earlier = application();
        earlier["status"]["sync"]["revision"] = json!("sha256:0");
        earlier["status"]["conditions"] = condition("SyncError", missing);
        for one in [first, synced, earlier] {
            match progress(&one, "sha256:1") {
                DeliveryProgress::Waiting(why) => assert!(why.contains(missing), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        let mut ours = application();
        ours["status"]["conditions"] = condition("SyncError", "one or more objects failed to apply");
        let mut named = ours.clone();
        named["status"]["sync"] = json!({"status": "Unknown"});
        named["status"]["conditions"] = condition("ComparisonError", "sha256:1 is not an archive");
        let mut warning = application();
        warning["status"]["conditions"] = condition("SharedResourceWarning", "sha256:1");
        assert_eq!(progress(&warning, "sha256:1"), DeliveryProgress::Healthy);
        for one in [ours, named] {
            let found = progress(&one, "sha256:1");
            assert!(matches!(found, DeliveryProgress::Failed(_)), "{found:?}");
        }
    }
}
