//! A stack in an unreadable folder is not treated as removed, and the run does not report success.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::support::{ci_stage::Stage, tiny_monorepo};

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_waits_until_every_stack_can_be_seen_and_says_for_what() {
    let mut stage = Stage::with("unseen", tiny_monorepo::monorepo(), "").await;
    let program = r#"resources = [{apiVersion = "v1", kind = "ConfigMap", metadata = {name = "unseen", namespace = "default"}}]
"#;
    // Another tool's file of that name, with no stack below, hides nothing.
    stage.propose("add", |monorepo| {
        tiny_monorepo::write_program(monorepo, "web/dev", program);
        monorepo.write("docs/sample/project.yaml", "title: A sample\n");
    });
    stage.pull_request(7, "add", "opened").outcome.check(0);
    stage.merge(7, "add").outcome.check(0);
    let objects: Api<ConfigMap> = Api::namespaced(stage.cluster.client().await, "default");
    assert!(objects.get_opt("unseen").await.unwrap().is_some());

    // The removal comes with a submodule that the job does not check out.
    let library = tiny_monorepo::monorepo();
    let commit = library.commit("Another repository");
    stage.propose("remove", |monorepo| {
        monorepo.remove("appops/web");
        std::fs::create_dir_all(monorepo.path().join("team")).unwrap();
        let entry = format!("160000,{commit},team");
        monorepo.git(["update-index", "--add", "--cacheinfo", entry.as_str()]);
    });
    stage.pull_request(8, "remove", "opened").outcome.check(0);
    let (_, comment) = stage.comments().pop().unwrap();
    for words in ["the apply will skip this removal", "submodule is not checked out"] {
        assert!(comment.contains(words), "{words}: {comment}");
    }
    let held = stage.merge(8, "remove");
    held.outcome.check(1);
    let head = stage.monorepo.rev("main");
    assert_eq!(stage.status(&head, "konverge/apply").as_deref(), Some("failure"));
    for words in ["web/dev", "team: ", "submodules: true"] {
        assert!(
            held.outcome.stdout.contains(words),
            "{words}: {}",
            held.outcome.stdout
        );
    }
    assert!(objects.get_opt("unseen").await.unwrap().is_some());

    // A project without a name above a stack hides what that is called.
    let edit = |stage: &mut Stage, change: &dyn Fn(&crate::support::git::Repository)| {
        let before = stage.monorepo.checkout("main").rev("main");
        change(&stage.monorepo);
        let after = stage.monorepo.commit("On main");
        stage.push(&before, &after)
    };
    let hidden = edit(&mut stage, &|monorepo| {
        monorepo.git(["rm", "--quiet", "--cached", "team"]);
        tiny_monorepo::write_program(monorepo, "shop/dev", "resources = []\n");
        monorepo.write("appops/shop/project.yaml", "title: shop\n");
    });
    hidden.outcome.check(1);
    for words in ["web/dev", "appops/shop/project.yaml", "a project needs a `name`"] {
        assert!(
            hidden.outcome.stdout.contains(words),
            "{words}: {}",
            hidden.outcome.stdout
        );
    }
    assert!(objects.get_opt("unseen").await.unwrap().is_some());

    let fixed = edit(&mut stage, &|monorepo| {
        monorepo.write("appops/shop/project.yaml", "name: shop\n");
    });
    fixed.outcome.check(0);
    assert!(
        objects.get_opt("unseen").await.unwrap().is_none(),
        "now it is taken down"
    );
}

/// A person's apply holds the same removals back, and says for what; `destroy` by name takes the stack down.
#[tokio::test(flavor = "multi_thread")]
async fn an_apply_by_hand_holds_the_same_removals_back() {
    let stage = Stage::with("unseen-by-hand", tiny_monorepo::monorepo(), "").await;
    let monorepo = &stage.monorepo;
    let program = r#"resources = [{apiVersion = "v1", kind = "ConfigMap", metadata = {name = "unseen-by-hand", namespace = "default"}}]
"#;
    tiny_monorepo::write_program(monorepo, "web/dev", program);
    tiny_monorepo::write_program(monorepo, "web/prod", "resources = []\n");
    monorepo.commit("Two stacks");
    let konverge = |arguments: &[&str]| {
        stage
            .konverge(arguments.iter().copied())
            .dir(monorepo.path())
            .run()
    };
    konverge(&["apply", "web/dev", "--yes"]).check(0);
    let objects: Api<ConfigMap> = Api::namespaced(stage.cluster.client().await, "default");
    assert!(objects.get_opt("unseen-by-hand").await.unwrap().is_some());

    let commit = tiny_monorepo::monorepo().commit("Another repository");
    monorepo.remove("appops/web/dev");
    std::fs::create_dir_all(monorepo.path().join("team")).unwrap();
    let entry = format!("160000,{commit},team");
    monorepo.git(["update-index", "--add", "--cacheinfo", entry.as_str()]);
    monorepo.git([
        "commit",
        "--quiet",
        "--all",
        "--message",
        "One is gone, and a submodule is there",
    ]);
    for arguments in [
        &["apply", "--rev", "HEAD", "--base", "HEAD~1", "--yes"][..],
        &["apply", "web/dev", "--rev", "HEAD", "--yes"],
    ] {
        let held = konverge(arguments);
        let said = format!("{}{}", held.stdout, held.stderr);
        assert_eq!(held.code, Some(1), "{said}");
        for words in ["web/dev", "team: ", "submodules: true"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(
            objects.get_opt("unseen-by-hand").await.unwrap().is_some(),
            "{said}"
        );
    }
    konverge(&["destroy", "web/dev", "--yes"]).check(0);
    assert!(objects.get_opt("unseen-by-hand").await.unwrap().is_none());
}
