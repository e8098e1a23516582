//! A fork's pull request on a machine whose user can reach what is private: it gets nothing of that, and whatever is
//! checked out grants it nothing.

use base64::Engine as _;
use sha2::Digest as _;

use crate::support::{
    ci_stage::{Ran, Stage},
    git::Repository,
    git_server::GitServer,
    payloads, tiny_monorepo,
};

const MODULE: &str = "[package]\nname = \"small\"\nversion = \"0.1.0\"\n";

/// A package with one value, and its checksum.
fn library(code: &str, beside: &str) -> (Repository, String) {
    let module = "[package]\nname = \"lib\"\nversion = \"0.1.0\"\n";
    let library = Repository::init();
    library.write("kcl.mod", module).write("lib.k", code);
    library.write("z.txt", beside).commit("The library");
    let hash = sha2::Sha256::digest([module, code, beside].concat());
    (library, base64::engine::general_purpose::STANDARD.encode(hash))
}

/// Takes the package `lib` from `url` into the module, locked with `sum`.
fn depend(stage: &Stage, url: &str, commit: &str, sum: &str) {
    let (module, lock) = (
        format!("{MODULE}[dependencies]\nlib = {{ git = \"{url}\", commit = \"{commit}\" }}\n"),
        format!("[dependencies.lib]\nname = \"lib\"\nsum = \"{sum}\"\n"),
    );
    stage
        .monorepo
        .write("kcl.mod", module)
        .write("kcl.mod.lock", lock);
}

/// A stack with one ConfigMap that holds the package's value.
fn stack(stage: &Stage, id: &str, map: &str, more: &str) {
    let program = format!(
        "import lib\n\nresources = [{{id = \"v1:ConfigMap:default:{map}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{map}\", namespace = \"default\"}}, data = {{value = lib.value + \"{more}\"}}}}}}]\n"
    );
    tiny_monorepo::write_program(&stage.monorepo, id, &program);
}

/// A fork's pull request in its own job, then in the one of this repository that may write.
fn from_a_fork(stage: &mut Stage, number: u64, branch: &str, change: impl FnOnce(&Stage)) -> [Ran; 2] {
    stage.monorepo.checkout("main").branch(branch);
    change(stage);
    let head = stage.monorepo.commit(branch);
    let (payload, trial) = stage.opened(number, branch, "opened", "mallory/konfig");
    let own = stage.preview(number, &payload, &trial);
    let payload = payloads::workflow_run((branch, &head), "mallory/konfig", "mallory");
    let tip = stage.monorepo.rev("main");
    [own, stage.ci("workflow_run", &payload, &tip, "refs/heads/main")]
}

/// Everything that such a run tells anybody.
fn told(stage: &Stage, ran: &Ran) -> String {
    let comments: String = stage.comments().into_iter().map(|(_, body)| body).collect();
    let page = std::fs::read_to_string(ran.output("summary-path")).unwrap_or_default();
    let (out, err) = (&ran.outcome.stdout, &ran.outcome.stderr);
    [out, err, &ran.summary, &ran.outputs, &comments, &page]
        .map(String::as_str)
        .concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_reads_no_repository_that_the_runner_can_reach() {
    let mut stage = Stage::small("").await;
    let (private, sum) = library(
        "import file\nvalue = file.read(\"z.txt\")\n",
        "db_password=TopSecret123",
    );
    let (url, commit) = (
        format!("file://{}", private.path().display()),
        private.rev("main"),
    );
    for (number, pinned) in [(7, "wrong"), (8, sum.as_str())] {
        let branch = format!("capture-{number}");
        let runs = from_a_fork(&mut stage, number, &branch, |stage| {
            depend(stage, &url, &commit, pinned);
            stack(stage, "evil/dev", "evil", "");
        });
        for ran in runs {
            ran.outcome.check(1);
            let told = told(&stage, &ran);
            assert!(!told.contains("TopSecret"), "{told}");
            assert!(pinned == sum || !told.contains(&sum), "{told}");
            let refusal = "`lib` is not fetched for a pull request from outside";
            assert!(
                told.contains(refusal) && told.contains("ask a maintainer"),
                "{told}"
            );
        }
    }
    // Its own people may: who can write to the repository runs code with the job's credentials anyway.
    stage.reviewed(9, "own", |stage| {
        depend(stage, &url, &commit, &sum);
        stack(stage, "own/dev", "strangers-own", "");
    });
}

/// What the base has is fetched for a stranger, too, but as anybody could.
#[tokio::test(flavor = "multi_thread")]
async fn a_private_package_serves_its_own_people_alone() {
    let mut stage = Stage::small("").await;
    let server = GitServer::start(stage.cluster);
    let home = tempfile::tempdir().unwrap();
    std::fs::write(
        home.path().join(".netrc"),
        "machine 127.0.0.1 login dev password s3cret\n",
    )
    .unwrap();
    stage.env = vec![
        ("HOME", home.path().display().to_string()),
        ("GIT_SSL_CAINFO", server.authority().display().to_string()),
    ];
    let (library, sum) = library("value = \"one\"\n", "");
    let commit = library.rev("main");
    for (number, kind) in [(7, "private"), (9, "public")] {
        let name = format!("{kind}/lib");
        let url = server.serve(&library, &name);
        let (id, map) = (format!("{kind}/dev"), format!("strangers-{kind}"));
        // A pull request of this repository brings it in, and its merge applies it.
        stage.reviewed(number, kind, |stage| {
            depend(stage, &url, &commit, &sum);
            stack(stage, &id, &map, kind);
        });
        stage.merge(number, kind).outcome.check(0);
        let value = stage.value(&map).await;
        assert_eq!(value, Some(format!("one{kind}")));
        let before = server.asked(&name).len();
        assert_eq!(kind == "private", server.asked(&name).contains(&true));

        let runs = from_a_fork(&mut stage, number + 1, &format!("fork-{kind}"), |stage| {
            stack(stage, &id, &map, "changed");
        });
        for ran in runs {
            let told = told(&stage, &ran);
            if kind == "public" {
                ran.outcome.check(0);
                assert!(told.contains("onechanged"), "{told}");
            } else {
                ran.outcome.check(1);
                assert!(told.contains("the package `lib`: git:"), "{told}");
                assert!(told.contains("kcl mod vendor"), "{told}");
            }
        }
        let asked = server.asked(&name).split_off(before);
        assert!(!asked.is_empty() && !asked.contains(&true), "{asked:?}");
    }
}

/// Where nothing pins a package, the repository's own people get what its tag is now, and a stranger gets nothing. The
/// commit in the lock of the base is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_gets_only_what_the_base_has_locked() {
    let mut stage = Stage::small("").await;
    let server = GitServer::start(stage.cluster);
    let authority = server.authority().display().to_string();
    stage.env = vec![("GIT_SSL_CAINFO", authority)];
    let (library, _) = library("value = \"one\"\n", "");
    library.git(["tag", "v1"]);
    let url = server.serve(&library, "public/lib").replace("https://", "git://");
    let (_, own) = stage.reviewed(7, "unlocked", |stage| {
        let module = format!("{MODULE}[dependencies]\nlib = {{ git = \"{url}\", tag = \"v1\" }}\n");
        stage.monorepo.write("kcl.mod", module);
        stack(stage, "unlocked/dev", "strangers-unlocked", "");
    });
    let commit = library.rev("main");
    let said = told(&stage, &own);
    assert!(said.contains(&format!("is now the commit {commit}")), "{said}");
    assert!(
        said.contains("hint: run `konverge kcl lock` and commit kcl.mod.lock"),
        "{said}"
    );
    stage.merge(7, "unlocked").outcome.check(0);
    let change = |stage: &Stage| stack(stage, "unlocked/dev", "strangers-unlocked", "changed");
    for ran in from_a_fork(&mut stage, 8, "fork-unlocked", change) {
        ran.outcome.check(1);
        let told = told(&stage, &ran);
        assert!(told.contains("gets only what its target branch locks"), "{told}");
        assert!(
            told.contains("ask a maintainer to run `konverge kcl lock` on the target branch"),
            "{told}"
        );
    }
    stage.reviewed(9, "lock", |stage| {
        let lock = format!(
            "[dependencies]\n  [dependencies.lib]\n    git_tag = \"v1\"\n    git_commit = \"{commit}\"\n"
        );
        stage.monorepo.write("kcl.mod.lock", lock);
    });
    stage.merge(9, "lock").outcome.check(0);
    for ran in from_a_fork(&mut stage, 10, "fork-locked", change) {
        ran.outcome.check(0);
        let told = told(&stage, &ran);
        assert!(told.contains("onechanged"), "{told}");
    }
}

/// The working tree of the job that may write holds the stranger's commit in one way or another: refused. It holds
/// something else: what GitHub says is the default branch's tip holds all the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_checked_out_grants_nothing() {
    let mut stage = Stage::small("").await;
    let evil = stage.scratch.path().join("evil");
    let take_power = |stage: &Stage| {
        std::fs::create_dir_all(&evil).unwrap();
        let ours = stage.monorepo.read("konverge.yaml");
        let store = stage.scratch.path().join("store").display().to_string();
        let theirs = ours.replace(&store, &evil.display().to_string());
        assert_ne!(ours, theirs);
        stage.monorepo.write("konverge.yaml", theirs);
    };
    stage.monorepo.branch("contribute");
    take_power(&stage);
    stage.stack("tree/dev", &[("tree-web", "one")]);
    let head = stage.monorepo.commit("contribute");
    let (_, trial) = stage.opened(9, "contribute", "opened", "mallory/konfig");
    stage.monorepo.checkout(&head);
    let on_top = stage.monorepo.commit("On top");
    stage.monorepo.checkout("main").branch("other");
    take_power(&stage);
    let other = stage.monorepo.commit("Another branch of ours");

    let tip = stage.monorepo.rev("main");
    let payload = payloads::workflow_run(("contribute", &head), "mallory/konfig", "mallory");
    let written = || std::fs::read_dir(&evil).unwrap().count();
    let shallow = {
        stage.monorepo.git(["update-ref", "refs/pull/9/merge", &trial]);
        let checkout = Repository::init();
        let origin = format!("file://{}", stage.monorepo.path().display());
        checkout.git(["remote", "add", "origin", &origin]);
        checkout.git(["fetch", "--quiet", "--depth=1", "origin", "refs/pull/9/merge"]);
        checkout
    };
    let full = stage.monorepo.path().to_owned();
    for (at, folder) in [
        (&head, full.as_path()),
        (&trial, &full),
        (&on_top, &full),
        (&trial, shallow.path()),
    ] {
        if folder == full {
            stage.monorepo.checkout(at);
        } else {
            shallow.checkout(at);
        }
        let refused = stage.ci_in(folder, "workflow_run", &payload, &tip, "refs/heads/main");
        refused.outcome.check(1);
        let said = &refused.outcome.stderr;
        assert!(said.contains("a commit from a fork or Dependabot"), "{said}");
        assert!(said.contains("check out the default branch"), "{said}");
        assert_eq!(written(), 0);
    }
    assert_eq!(stage.comments(), []);

    stage.monorepo.checkout(&other);
    let told = stage.ci_in(&full, "workflow_run", &payload, &tip, "refs/heads/main");
    told.outcome.check(0);
    assert_eq!(written(), 0);
    assert_eq!(stage.states().await.reviews().list().await.unwrap().len(), 1);
    assert!(stage.comments()[0].1.contains("tree/dev"));
}

/// The rules of a fork are neither parsed nor evaluated: that they change is shown.
#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_fork_are_only_shown_as_changed() {
    let sets = "policy:\n  sets:\n  - {name: maps, path: ops/policy, input: objects}\n";
    let mut stage = Stage::small(sets).await;
    let rules = "package main\n\ndeny contains \"m\" if false\n";
    stage
        .monorepo
        .write("ops/policy/maps.rego", rules)
        .commit("Rules");
    let nested = format!("{}1{}", "[".repeat(40), "]".repeat(40));
    let runs = from_a_fork(&mut stage, 7, "slow-rules", |stage| {
        let slow = format!("package main\n\nx := {nested}\n");
        stage.monorepo.write("ops/policy/maps.rego", slow);
        stage.stack("forked/dev", &[("forked", "value")]);
    });
    for ran in &runs {
        ran.outcome.check(0);
        let told = told(&stage, ran);
        for word in ["processor time", "maps/load", "cannot be read"] {
            assert!(!told.contains(word), "{word}: {told}");
        }
    }
    let told = told(&stage, &runs[1]);
    assert!(told.contains("policy.sets: maps"), "{told}");
}
