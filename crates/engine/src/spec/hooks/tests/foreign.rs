//! The annotations of Argo CD and of Helm.

use super::*;

#[test]
fn the_annotations_of_other_tools_are_understood_if_that_is_wanted() {
    let argo = |value: &str| json!({"argocd.argoproj.io/hook": value});
    let helm = |value: &str| json!({"helm.sh/hook": value});
    let mut both = argo("PreSync");
    both["helm.sh/hook"] = json!("post-install");
    let cases = [
        (argo("PreSync"), Some((HookTime::Pre, true)), 0),
        (argo("PostSync"), Some((HookTime::Post, true)), 0),
        (argo("SyncFail"), Some((HookTime::Failed, true)), 0),
        (argo("PreDelete"), Some((HookTime::PreDestroy, true)), 0),
        (argo("Sync"), None, 1),
        (argo("Skip"), None, 1),
        (argo("PostDelete"), None, 1),
        (argo("PreSync,PostSync"), Some((HookTime::Pre, true)), 1),
        (both, Some((HookTime::Pre, true)), 1),
        (
            json!({"argocd.argoproj.io/hook": "PreSync", "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation", "argocd.argoproj.io/sync-wave": "-1"}),
            Some((HookTime::Pre, true)),
            1,
        ),
        (
            json!({"argocd.argoproj.io/hook": "PreSync", "argocd.argoproj.io/hook-delete-policy": "HookSucceeded,HookFailed"}),
            Some((HookTime::Pre, false)),
            0,
        ),
        (
            json!({"argocd.argoproj.io/hook": "PreSync", "argocd.argoproj.io/hook-delete-policy": "HookSucceeded"}),
            Some((HookTime::Pre, true)),
            1,
        ),
        (helm("pre-install,pre-upgrade"), Some((HookTime::Pre, true)), 0),
        (
            helm("post-install, post-upgrade"),
            Some((HookTime::Post, true)),
            0,
        ),
        (helm("pre-install"), Some((HookTime::Pre, true)), 1),
        (helm("post-upgrade"), Some((HookTime::Post, true)), 1),
        (helm("pre-delete"), Some((HookTime::PreDestroy, true)), 0),
        (helm("post-delete"), None, 1),
        (helm("pre-rollback"), None, 1),
        (helm("test"), None, 1),
        (
            json!({"helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-weight": "-5", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded", "helm.sh/hook-output-log-policy": "hook-failed"}),
            Some((HookTime::Pre, true)),
            3,
        ),
        (
            json!({"helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-weight": "0"}),
            Some((HookTime::Pre, true)),
            0,
        ),
    ];
    for (annotations, expected, notes) in cases {
        let job = hook("m", annotations.clone());
        let rules = HookRules {
            argocd: true,
            helm: true,
            ..rules()
        };
        let (hooks, _) = ordered(&[job.clone(), workload("web")], &rules).unwrap();
        let found = hooks.tasks.get(&job.id).map(|task| (task.time, task.keeps_last));
        assert_eq!(
            (found, hooks.notes.len()),
            (expected, notes),
            "{annotations}: {:?}",
            hooks.notes
        );
        let (unread, _) = ordered(&[job, workload("web")], &super::rules()).unwrap();
        assert!(unread.tasks.is_empty() && unread.notes.is_empty());
    }
}

/// Every annotation that the two tools document for hooks, with each of its values, as their users write them: what it
/// means here, or the note that names it.
#[test]
fn each_documented_annotation_is_understood_or_named() {
    // The key below the tool's domain, the value, what the Job becomes, and the values that are named.
    type Documented = (
        &'static str,
        &'static str,
        Option<HookTime>,
        &'static [&'static str],
    );
    const ARGO: [Documented; 19] = [
        ("hook", "PreSync", Some(HookTime::Pre), &[]),
        ("hook", "PostSync", Some(HookTime::Post), &[]),
        ("hook", "SyncFail", Some(HookTime::Failed), &[]),
        ("hook", "PreDelete", Some(HookTime::PreDestroy), &[]),
        ("hook", "Sync", None, &["Sync"]),
        ("hook", "Skip", None, &["Skip"]),
        ("hook", "PostDelete", None, &["PostDelete"]),
        ("hook", "PreSync, PreSync", Some(HookTime::Pre), &[]),
        (
            "hook",
            "PreSync,Sync,PostSync",
            Some(HookTime::Pre),
            &["Sync", "PostSync"],
        ),
        (
            "hook-delete-policy",
            "BeforeHookCreation",
            Some(HookTime::Pre),
            &[],
        ),
        (
            "hook-delete-policy",
            "HookSucceeded",
            Some(HookTime::Pre),
            &["HookSucceeded"],
        ),
        (
            "hook-delete-policy",
            "HookFailed",
            Some(HookTime::Pre),
            &["HookFailed"],
        ),
        (
            "hook-delete-policy",
            "BeforeHookCreation,HookSucceeded",
            Some(HookTime::Pre),
            &["HookSucceeded"],
        ),
        (
            "hook-delete-policy",
            "HookSucceeded,HookFailed",
            Some(HookTime::Pre),
            &[],
        ),
        ("sync-wave", "-5", Some(HookTime::Pre), &["-5"]),
        ("sync-wave", "0", Some(HookTime::Pre), &[]),
        (
            "sync-options",
            "Force=true,Replace=true",
            Some(HookTime::Pre),
            &["Force=true,Replace=true"],
        ),
        (
            "compare-options",
            "IgnoreExtraneous",
            Some(HookTime::Pre),
            &["IgnoreExtraneous"],
        ),
        ("ignore-healthcheck", "true", Some(HookTime::Pre), &["true"]),
    ];
    const HELM: [Documented; 22] = [
        ("hook", "pre-install,pre-upgrade", Some(HookTime::Pre), &[]),
        ("hook", "pre-upgrade, pre-install", Some(HookTime::Pre), &[]),
        ("hook", "post-install,post-upgrade", Some(HookTime::Post), &[]),
        ("hook", "pre-install", Some(HookTime::Pre), &["pre-install"]),
        ("hook", "pre-upgrade", Some(HookTime::Pre), &["pre-upgrade"]),
        ("hook", "post-install", Some(HookTime::Post), &["post-install"]),
        ("hook", "post-upgrade", Some(HookTime::Post), &["post-upgrade"]),
        ("hook", "pre-delete", Some(HookTime::PreDestroy), &[]),
        ("hook", "post-delete", None, &["post-delete"]),
        ("hook", "pre-rollback", None, &["pre-rollback"]),
        ("hook", "post-rollback", None, &["post-rollback"]),
        ("hook", "test", None, &["test"]),
        ("hook", "test-success", None, &["test-success"]),
        ("hook", "crd-install", None, &["crd-install"]),
        (
            "hook",
            "pre-install,pre-upgrade,pre-rollback",
            Some(HookTime::Pre),
            &["pre-rollback"],
        ),
        ("hook-weight", "-5", Some(HookTime::Pre), &["-5"]),
        ("hook-weight", "0", Some(HookTime::Pre), &[]),
        (
            "hook-delete-policy",
            "before-hook-creation",
            Some(HookTime::Pre),
            &[],
        ),
        (
            "hook-delete-policy",
            "hook-succeeded",
            Some(HookTime::Pre),
            &["hook-succeeded"],
        ),
        (
            "hook-delete-policy",
            "before-hook-creation,hook-succeeded,hook-failed",
            Some(HookTime::Pre),
            &[],
        ),
        (
            "hook-output-log-policy",
            "hook-failed",
            Some(HookTime::Pre),
            &["hook-failed"],
        ),
        ("resource-policy", "keep", Some(HookTime::Pre), &["keep"]),
    ];
    let tools = [
        ("argocd.argoproj.io", "PreSync", &ARGO[..]),
        ("helm.sh", "pre-install,pre-upgrade", &HELM[..]),
    ];
    let rules = HookRules {
        argocd: true,
        helm: true,
        ..rules()
    };
    for (domain, before, table) in tools {
        for (key, value, time, named) in table {
            let mut annotations = json!({format!("{domain}/hook"): before});
            annotations[format!("{domain}/{key}")] = json!(value);
            let job = hook("m", annotations.clone());
            let (hooks, _) = ordered(&[job.clone(), workload("web")], &rules).unwrap();
            let found = hooks.tasks.get(&job.id).map(|task| task.time);
            assert_eq!(found, *time, "{annotations}");
            let notes = &hooks.notes;
            assert_eq!(notes.len(), named.len(), "{annotations}: {notes:?}");
            for value in *named {
                let text = format!("`{domain}/{key}: {value}`");
                assert!(notes.iter().any(|note| note.contains(&text)), "{text}: {notes:?}");
            }
        }
    }
}

/// What the tools read on a plain object, on a hook of ours and beside a time without a meaning is named too, once for
/// all objects that have it.
#[test]
fn an_annotation_of_another_tool_is_named_wherever_it_stands() {
    let rules = HookRules {
        argocd: true,
        helm: true,
        ..rules()
    };
    let with = |mut resource: Resource, annotations: Value| {
        resource.attributes["metadata"]["annotations"] = annotations;
        resource
    };
    let wave = json!({"argocd.argoproj.io/sync-wave": "1"});
    let keep = json!({"helm.sh/resource-policy": "keep", "example.com/other": "x"});
    let own =
        json!({"konverge/hook": "pre", "helm.sh/hook-weight": "3", "argocd.argoproj.io/hook": "PostSync"});
    let skipped =
        json!({"argocd.argoproj.io/hook": "Skip", "argocd.argoproj.io/sync-options": "Prune=false"});
    let objects = [
        with(workload("web"), wave.clone()),
        with(workload("api"), wave),
        with(hook("plain", json!({})), keep),
        hook("own", own),
        hook("skipped", skipped),
        with(workload("none"), json!({"argocd.argoproj.io/sync-wave": "0"})),
    ];
    let (hooks, _) = ordered(&objects, &rules).unwrap();
    let expected = [
        ("`batch/v1:Job:shop:skipped`", "`argocd.argoproj.io/hook: Skip`"),
        ("`batch/v1:Job:shop:own`", "`argocd.argoproj.io/hook: PostSync`"),
        (
            "`batch/v1:Job:shop:skipped`",
            "`argocd.argoproj.io/sync-options: Prune=false`",
        ),
        (
            "`apps/v1:Deployment:shop:web` and 1 more",
            "`argocd.argoproj.io/sync-wave: 1`",
        ),
        ("`batch/v1:Job:shop:own`", "`helm.sh/hook-weight: 3`"),
        ("`batch/v1:Job:shop:plain`", "`helm.sh/resource-policy: keep`"),
    ];
    assert_eq!(hooks.notes.len(), expected.len(), "{:?}", hooks.notes);
    for (note, (start, part)) in hooks.notes.iter().zip(expected) {
        assert!(
            note.starts_with(&format!("{start}: {part} of")),
            "{start} {part}: {note}"
        );
    }
    assert_eq!(hooks.tasks.len(), 1);
    let (unread, _) = ordered(&objects, &super::rules()).unwrap();
    assert!(unread.notes.is_empty(), "{:?}", unread.notes);
}

/// What another tool makes only at times that do not exist here is made by no apply; what it makes with the other
/// objects is.
#[test]
fn what_has_no_time_here_is_left_out_and_named() {
    let annotated = |key: &str, value: &str| hook("m", json!({key: value}));
    let both = HookRules {
        argocd: true,
        helm: true,
        ..rules()
    };
    for (key, value, is_left_out) in [
        ("argocd.argoproj.io/hook", "Skip", true),
        ("argocd.argoproj.io/hook", "PostDelete", true),
        ("argocd.argoproj.io/hook", "Sync", false),
        ("argocd.argoproj.io/hook", "PreSync,PostDelete", false),
        ("helm.sh/hook", "test", true),
        ("helm.sh/hook", "post-delete, pre-rollback", true),
        ("helm.sh/hook", "pre-rollback,pre-upgrade", false),
        ("helm.sh/hook", "crd-install", false),
        ("helm.sh/hook", "no-such-time", true),
        ("helm.sh/hook-weight", "3", false),
    ] {
        let left = |rules: &HookRules| {
            let resources = vec![annotated(key, value), workload("web")];
            let mut spec = Spec {
                resources,
                ..Spec::default()
            };
            let notes = leave_out(&mut spec, rules);
            assert_eq!(notes.len() + spec.resources.len(), 2, "{notes:?}");
            assert!(
                notes.iter().all(|note| note.contains(&format!("`{key}: "))),
                "{notes:?}"
            );
            !notes.is_empty()
        };
        assert_eq!(left(&both), is_left_out, "{key}: {value}");
        assert!(!left(&rules()), "nobody asked to read {key}");
    }
    let mut own = annotated("helm.sh/hook", "test");
    own.attributes["metadata"]["annotations"]["konverge/hook"] = json!("pre");
    let mut spec = Spec {
        resources: vec![own],
        ..Spec::default()
    };
    assert!(leave_out(&mut spec, &both).is_empty());
    // `Sync` comes after what is before every workload.
    let sync = annotated("argocd.argoproj.io/hook", "Sync");
    let pre = hook("pre", json!({"konverge/hook": "pre"}));
    let (hooks, _) = ordered(&[sync.clone(), pre.clone()], &both).unwrap();
    assert_eq!(hooks.tasks[&pre.id].guards, [sync.id]);
    assert!(
        hooks.notes[0].contains("after `pre` hooks and before `post` hooks"),
        "{:?}",
        hooks.notes
    );
}

#[test]
fn what_a_tool_keeps_points_to_our_annotation() {
    let both = HookRules {
        argocd: true,
        helm: true,
        ..rules()
    };
    for (key, value, points) in [
        ("helm.sh/resource-policy", "keep", true),
        ("argocd.argoproj.io/sync-options", "Force=true,Prune=false", true),
        ("argocd.argoproj.io/sync-options", "Delete=false", true),
        ("argocd.argoproj.io/sync-options", "Prune=true", false),
    ] {
        // On a plain object, and on a hook of that tool.
        let time = if key.starts_with("helm") {
            ("helm.sh/hook", "pre-install,pre-upgrade")
        } else {
            ("argocd.argoproj.io/hook", "PreSync")
        };
        for annotations in [json!({key: value}), json!({key: value, time.0: time.1})] {
            let (hooks, _) = ordered(&[hook("m", annotations), workload("web")], &both).unwrap();
            assert_eq!(hooks.notes.len(), 1, "{:?}", hooks.notes);
            assert_eq!(
                hooks.notes[0].contains("`konverge/keep: \"true\"`"),
                points,
                "{:?}",
                hooks.notes
            );
        }
    }
}

#[test]
fn a_config_map_that_another_tool_makes_a_hook_is_a_plain_object_and_named() {
    let annotations = json!({"helm.sh/hook": "pre-install,pre-upgrade"});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop", "annotations": annotations}});
    let rules = HookRules {
        helm: true,
        ..rules()
    };
    let (hooks, _) = ordered(
        &[resource("v1:ConfigMap:shop:c", object), workload("web")],
        &rules,
    )
    .unwrap();
    assert!(
        hooks.tasks.is_empty() && hooks.notes[0].contains("plain object"),
        "{:?}",
        hooks.notes
    );
}
