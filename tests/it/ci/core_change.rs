//! A pull request that changes the KCL core: its preview, its review and its apply are made with the core that it
//! names.

use konverge_kcl::DEFAULT_VERSION;

use crate::support::{ci_stage::Stage, cores, kcl::OLDER_VERSION, process::Konverge, tiny_monorepo};

/// A stack with a text that the cores read differently.
fn write_text(stage: &Stage, id: &str, map: &str) {
    let program = format!(
        "resources = [{{id = \"v1:ConfigMap:default:{map}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{map}\", namespace = \"default\"}}, data = {{value = \"\"\"\nline\"\"\"}}}}}}]\n"
    );
    tiny_monorepo::write_program(&stage.monorepo, id, &program);
}

fn set_core(stage: &Stage, from: &str, to: &str) {
    stage.monorepo.replace(
        "konverge.yaml",
        &format!("version: {from}"),
        &format!("version: {to}"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_core_changes_is_shown_and_applied_as_reviewed() {
    let mut stage = Stage::small("").await;
    let data = stage.scratch.path().join("data");
    cores::install_both(&data).await;
    stage.env.push(("XDG_DATA_HOME", data.display().to_string()));
    stage.reviewed(1, "text", |stage| write_text(stage, "cores/dev", "cores-text"));
    stage.merge(1, "text").outcome.check(0);
    assert_eq!(stage.value("cores-text").await.as_deref(), Some("line"));

    stage.reviewed(2, "core", |stage| set_core(stage, DEFAULT_VERSION, OLDER_VERSION));
    let comment = stage.comments().pop().unwrap().1;
    for part in ["1 to update", "cores/dev"] {
        assert!(comment.contains(part), "{part}: {comment}");
    }
    let merged = stage.merge(2, "core");
    merged.outcome.check(0);
    assert_eq!(stage.value("cores-text").await.as_deref(), Some("\nline"));
    assert_eq!(stage.github.world(|world| world.issues.len()), 0);
    // Nothing is left to do, and nothing has drifted.
    stage.again().outcome.check(0);
}

/// The two commands of the guides for GitLab and Jenkins: what the second writes, the first has shown.
#[tokio::test(flavor = "multi_thread")]
async fn elsewhere_what_is_applied_was_shown_too() {
    let stage = Stage::small("").await;
    let data = stage.scratch.path().join("data");
    cores::install_both(&data).await;
    let run = |stage: &Stage, arguments: &[&str]| {
        let konverge = Konverge::new(arguments.iter().copied()).dir(stage.monorepo.path());
        let konverge = konverge.env("KUBECONFIG", stage.cluster.kubeconfig());
        konverge.env("XDG_DATA_HOME", &data).run().expect(0)
    };
    write_text(&stage, "elsewhere/dev", "elsewhere-text");
    let base = stage.monorepo.commit("text");
    run(&stage, &["apply", "--pending", "--rev", &base, "--yes"]);
    assert_eq!(stage.value("elsewhere-text").await.as_deref(), Some("line"));

    set_core(&stage, DEFAULT_VERSION, OLDER_VERSION);
    let head = stage.monorepo.commit("core");
    let preview = [
        "preview", "--base", &base, "--rev", &head, "--live", "required", "--output", "markdown",
    ];
    let shown = run(&stage, &preview).stdout;
    for part in ["1 to update", "elsewhere/dev"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let applied = run(&stage, &["apply", "--pending", "--rev", &head, "--yes"]).stdout;
    assert!(applied.contains("1 stack: 1 applied"), "{applied}");
    assert_eq!(stage.value("elsewhere-text").await.as_deref(), Some("\nline"));
    let again = run(&stage, &["apply", "--pending", "--rev", &head, "--yes"]).stdout;
    assert!(again.contains("0 stacks"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_core_that_is_missing_or_not_pinned_fails_the_preview_by_name() {
    let mut stage = Stage::small("").await;
    stage.stack("nocore/dev", &[("nocore", "one")]);
    stage.monorepo.commit("A stack");
    for (number, branch, core, words) in [
        (
            1,
            "missing",
            OLDER_VERSION,
            format!("konverge kcl install {OLDER_VERSION}"),
        ),
        (
            2,
            "unpinned",
            "0.99.0",
            "a pull request cannot choose the KCL core `0.99.0`".to_owned(),
        ),
    ] {
        let head = stage.propose(branch, |_| {});
        set_core(&stage, DEFAULT_VERSION, core);
        let head_with = stage.monorepo.commit(branch);
        assert_ne!(head, head_with);
        let ran = stage.pull_request(number, branch, "opened");
        assert_ne!(ran.outcome.code, Some(0));
        let told = format!(
            "{}{}{:?}",
            ran.outcome.stdout,
            ran.outcome.stderr,
            stage.comments()
        );
        assert!(told.contains(&words), "{words}: {told}");
    }
}
