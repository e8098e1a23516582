//! Reads the status of a Flux OCIRepository and its Kustomizations, and checks that they deliver the artifact of a
//! stack.

use serde_json::Value;

use super::progress::{DeliveryProblem, DeliveryProgress, is_empty, text};

/// The fields that a Kustomization must not have, because they change the objects or their target.
const CHANGING: [&str; 9] = [
    "patches",
    "images",
    "targetNamespace",
    "namePrefix",
    "nameSuffix",
    "components",
    "commonMetadata",
    "buildMetadata",
    "ignore",
];

/// The reasons with which an unready Kustomization waits for another object.
const WAITS: [&str; 2] = ["DependencyNotReady", "ArtifactFailed"];

/// Returns why an OCIRepository does not deliver the artifact; `None` if it does.
pub(super) fn source_problem(source: &Value, artifact: &str, tag: &str) -> Option<DeliveryProblem> {
    let url = text(source, "/spec/url");
    if url != artifact {
        return Some(DeliveryProblem::other_source(url, artifact));
    }
    let reference = &source["spec"]["ref"];
    let is_tag = reference
        .as_object()
        .is_some_and(|all| all.len() == 1 && all.get("tag").is_some_and(|one| one == tag));
    if !is_tag {
        return Some(DeliveryProblem::other_source(
            &format!("{url} {reference}"),
            &format!("{artifact}:{tag}"),
        ));
    }
    for (key, remedy) in [
        (
            "layerSelector",
            "remove this key: the artifact has one layer, which must be extracted",
        ),
        (
            "ignore",
            "remove this key: the controller would miss files, and delete their objects",
        ),
    ] {
        if !is_empty(&source["spec"][key]) {
            return Some(DeliveryProblem::new(
                format!("`spec.{key}` changes which files the controller reads"),
                remedy,
            ));
        }
    }
    suspended(source)
}

/// Returns the Kustomizations of a list that read from an OCIRepository.
pub(super) fn readers(list: &Value, source: &str) -> Vec<Value> {
    let reads = |one: &&Value| {
        let reference = &one["spec"]["sourceRef"];
        let namespace = text(reference, "/namespace");
        reference["kind"] == "OCIRepository"
            && reference["name"] == source
            && (namespace.is_empty() || namespace == text(one, "/metadata/namespace"))
    };
    let items = list["items"].as_array().into_iter().flatten();
    items.filter(reads).cloned().collect()
}

/// Returns why a Kustomization does not deliver its source unchanged; `None` if it does. `is_own` is true if the
/// controller runs in the cluster of the stack.
pub(super) fn kustomization_problem(one: &Value, is_own: bool) -> Option<DeliveryProblem> {
    if is_empty(&one["spec"]["kubeConfig"]) != is_own {
        return Some(if is_own {
            DeliveryProblem::new(
                "`spec.kubeConfig` sends the objects to another cluster than that of the stack",
                "remove this key; or set `delivery.cluster` in konverge.yaml, if Flux runs in another cluster",
            )
        } else {
            DeliveryProblem::new(
                "it has no `spec.kubeConfig`, so the objects would go to the cluster of Flux",
                "set `spec.kubeConfig` to the cluster of the stack: `delivery.cluster` is that of Flux",
            )
        });
    }
    if one["spec"]["force"] == true {
        return Some(DeliveryProblem::new(
            "`spec.force` deletes objects and creates them again, which no preview shows",
            "remove it",
        ));
    }
    for key in ["substitute", "substituteFrom"] {
        if !one["spec"]["postBuild"][key].is_null() {
            return Some(DeliveryProblem::new(
                format!("`spec.postBuild.{key}` rewrites the data of objects"),
                "remove `spec.postBuild`: the controller would apply something else than the reviewed objects",
            ));
        }
    }
    for key in CHANGING {
        if !is_empty(&one["spec"][key]) {
            return Some(DeliveryProblem::new(
                format!("`spec.{key}` changes the objects or where they go"),
                "remove this key: the controller would apply something else than the reviewed objects",
            ));
        }
    }
    if one["spec"]["wait"] != true {
        return Some(DeliveryProblem::new(
            "`spec.wait` is not true, so the Kustomization does not wait until its objects are ready",
            "set `spec.wait: true`",
        ));
    }
    suspended(one)
}

fn suspended(object: &Value) -> Option<DeliveryProblem> {
    (object["spec"]["suspend"] == true).then(|| {
        DeliveryProblem::new(
            "it is suspended",
            "set `spec.suspend: false`, or wait until it is resumed",
        )
    })
}

/// Returns true if the Kustomization deletes objects that leave its folder.
pub(super) fn prunes(one: &Value) -> bool {
    one["spec"]["prune"] == true
}

/// Returns true if a file of the artifact is below the folder of the Kustomization.
pub(super) fn reads(one: &Value, file: &str) -> bool {
    let path = text(one, "/spec/path").trim_start_matches("./").trim_matches('/');
    path.is_empty() || path == "." || file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns how far Flux has applied an artifact.
pub(super) fn progress(source: &Value, kustomizations: &[Value], digest: &str) -> DeliveryProgress {
    let mut waiting = None;
    for one in kustomizations {
        let name = text(one, "/metadata/name");
        match of_one(one, digest) {
            DeliveryProgress::Healthy => {}
            DeliveryProgress::Failed(why) => {
                return DeliveryProgress::Failed(format!("Kustomization `{name}`: {why}"));
            }
            DeliveryProgress::Waiting(why) => {
                waiting.get_or_insert(format!("Kustomization `{name}`: {why}"));
            }
        }
    }
    match (waiting, condition(source, "Ready")) {
        (None, _) => DeliveryProgress::Healthy,
        (Some(_), Some(ready)) if ready["status"] == "False" => {
            let message = text(ready, "/message");
            DeliveryProgress::Waiting(format!("the artifact is not read: {message}"))
        }
        (Some(why), _) => DeliveryProgress::Waiting(why),
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|one| one["type"] == kind)
}

/// Returns true if a revision of the form `TAG@sha256:DIGEST` has this digest.
fn is_of(revision: &str, digest: &str) -> bool {
    revision == digest
        || revision
            .strip_suffix(digest)
            .is_some_and(|tag| tag.ends_with('@'))
}

fn of_one(one: &Value, digest: &str) -> DeliveryProgress {
    let generation = &one["metadata"]["generation"];
    let Some(ready) = condition(one, "Ready") else {
        return DeliveryProgress::Waiting("it has not been reconciled yet".to_owned());
    };
    let observed = match &ready["observedGeneration"] {
        Value::Null => &one["status"]["observedGeneration"],
        observed => observed,
    };
    let applied = text(one, "/status/lastAppliedRevision");
    let attempted = text(one, "/status/lastAttemptedRevision");
    let message = text(ready, "/message");
    if observed != generation {
        return DeliveryProgress::Waiting("its latest spec has not been reconciled yet".to_owned());
    }
    // A Kustomization that waits for a dependency was not applied, so it has not failed. The object that it waits for
    // reports its own error.
    let has_waited = WAITS.contains(&text(ready, "/reason"));
    match &ready["status"] {
        status if status == "True" && is_of(applied, digest) => DeliveryProgress::Healthy,
        status if status == "False" && is_of(attempted, digest) && !has_waited => {
            DeliveryProgress::Failed(message.to_owned())
        }
        _ => DeliveryProgress::Waiting(match applied {
            "" => format!("nothing is applied: {message}"),
            applied => format!("it is at {applied}: {message}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OURS: &str = "oci://r/acme/a";

    fn kustomization(status: &str, applied: &str) -> Value {
        json!({
            "metadata": {"name": "a-000", "namespace": "flux-system", "generation": 2},
            "spec": {"path": "./manifests/000", "prune": true, "wait": true, "sourceRef": {"kind": "OCIRepository", "name": "a"}},
            "status": {
                "observedGeneration": 2, "lastAppliedRevision": applied, "lastAttemptedRevision": "live@sha256:1",
                "conditions": [{"type": "Ready", "status": status, "observedGeneration": 2, "message": "as it is"}],
            },
        })
    }

    #[test]
    fn a_source_of_something_else_is_refused() {
        let source = |url: &str, reference: Value| json!({"spec": {"url": url, "ref": reference}});
        let ours = source(OURS, json!({"tag": "live"}));
        assert_eq!(source_problem(&ours, OURS, "live"), None);
        for other in [
            source("oci://r/acme/b", json!({"tag": "live"})),
            source(OURS, json!({"tag": "1"})),
            source(OURS, json!({"tag": "live", "digest": "sha256:0"})),
            source(OURS, json!({"semver": "*"})),
            json!({"spec": {"url": OURS, "ref": {"tag": "live"}, "suspend": true}}),
            json!({"spec": {"url": OURS, "ref": {"tag": "live"}, "ignore": "manifests/001"}}),
            json!({"spec": {"url": OURS, "ref": {"tag": "live"}, "layerSelector": {"operation": "copy"}}}),
            json!({"spec": {"url": OURS, "ref": {"tag": "live"}, "layerSelector": {"mediaType": "a"}}}),
        ] {
            assert!(source_problem(&other, OURS, "live").is_some(), "{other}");
        }
    }

    #[test]
    fn it_is_done_only_at_the_revision_and_of_the_latest_spec() {
        let of = |one: &Value| progress(&json!({}), std::slice::from_ref(one), "sha256:1");
        assert_eq!(
            of(&kustomization("True", "live@sha256:1")),
            DeliveryProgress::Healthy
        );
        for waiting in [
            kustomization("True", "live@sha256:0"),
            kustomization("Unknown", "live@sha256:1"),
            json!({"metadata": {"name": "a"}}),
        ] {
            assert!(matches!(of(&waiting), DeliveryProgress::Waiting(_)), "{waiting}");
        }
        let mut stale = kustomization("True", "live@sha256:1");
        stale["metadata"]["generation"] = json!(3);
        assert!(matches!(of(&stale), DeliveryProgress::Waiting(_)));
        let failed = of(&kustomization("False", "live@sha256:0"));
        assert!(matches!(failed, DeliveryProgress::Failed(_)), "{failed:?}");
        // Before the first push, after the failure of an earlier revision, and while another one is in the way.
        let mut first = kustomization("False", "");
        first["status"]["lastAttemptedRevision"] = json!("");
        let mut earlier = kustomization("False", "live@sha256:0");
        earlier["status"]["lastAttemptedRevision"] = json!("live@sha256:0");
        let mut after = kustomization("False", "live@sha256:0");
        after["status"]["conditions"][0]["reason"] = json!("DependencyNotReady");
        for one in [first, earlier, after] {
            match of(&one) {
                DeliveryProgress::Waiting(why) => assert!(why.contains("as it is"), "{why}"),
                other => panic!("{one}: {other:?}"),
            }
        }
    }

    #[test]
    fn only_readers_count_and_every_file_has_one() {
        let one = kustomization("True", "");
        let mut other = one.clone();
        other["spec"]["sourceRef"]["name"] = json!("b");
        assert_eq!(readers(&json!({"items": [one, other]}), "a").len(), 1);
        assert!(reads(&one, "manifests/000/a.yaml"));
        assert!(!reads(&one, "manifests/0001/a.yaml") && !reads(&one, "manifests/001/a.yaml"));
        let mut rewrites = one.clone();
        rewrites["spec"]["postBuild"] = json!({"substitute": {"a": "b"}});
        assert_eq!(kustomization_problem(&one, true), None);
        assert!(kustomization_problem(&rewrites, true).is_some());
        let mut forced = one.clone();
        forced["spec"]["force"] = json!(false);
        assert_eq!(kustomization_problem(&forced, true), None);
        forced["spec"]["force"] = json!(true);
        assert!(
            kustomization_problem(&forced, true)
                .unwrap()
                .what
                .contains("spec.force")
        );
        for (key, value) in [
            ("patches", json!([{"patch": "a"}])),
            ("images", json!([{"name": "a", "newTag": "1"}])),
            ("targetNamespace", json!("a")),
            ("namePrefix", json!("a-")),
            ("nameSuffix", json!("-a")),
            ("components", json!(["../a"])),
            ("commonMetadata", json!({"labels": {"a": "b"}})),
            ("buildMetadata", json!(["originAnnotations"])),
            ("ignore", json!([{"paths": ["/data"]}])),
        ] {
            let mut changes = one.clone();
            changes["spec"][key] = value;
            let what = kustomization_problem(&changes, true)
                .unwrap_or_else(|| panic!("{key}"))
                .what;
            assert!(
                what.contains(&format!("`spec.{key}` changes the objects or where they go")),
                "{what}"
            );
        }
    }

    #[test]
    fn a_controller_in_another_cluster_needs_a_kube_config_and_any_other_must_not_have_one() {
        let here = kustomization("True", "");
        let mut far = here.clone();
        far["spec"]["kubeConfig"] = json!({"secretRef": {"name": "a"}});
        assert_eq!(kustomization_problem(&here, true), None);
        assert_eq!(kustomization_problem(&far, false), None);
        for (one, is_own) in [(far, true), (here, false)] {
            let what = kustomization_problem(&one, is_own).unwrap().what;
            assert!(what.contains("spec.kubeConfig"), "{what}");
        }
    }
}
