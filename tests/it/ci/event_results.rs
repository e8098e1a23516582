//! What each event of GitHub brings about: from its payload, over a run on the real parts, to what stands on GitHub
//! afterwards, held against golden files.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it events_told` writes them; look at the difference before committing.

use serde_json::json;

use crate::support::{
    ci_stage::{Ran, Stage},
    git::Repository,
    github::Recorded,
    github_output::{told, without_runs},
    golden::golden,
    objects::Objects,
    payloads, tiny_monorepo,
};

/// A stage whose runs are told one after the other.
struct Story {
    stage: Stage,
    /// The stacks' namespaces begin so, since all tests share a cluster.
    prefix: &'static str,
    heard: usize,
    names: Vec<(String, &'static str)>,
}

impl Story {
    async fn begin(prefix: &'static str) -> Self {
        Self {
            stage: Stage::with(prefix, tiny_monorepo::monorepo(), "").await,
            prefix,
            heard: 0,
            names: Vec::new(),
        }
    }

    /// One with three stacks that were reviewed and applied, in pull request 1.
    async fn with_stacks(prefix: &'static str) -> Self {
        let mut story = Self::begin(prefix).await;
        story.propose("stacks", |repository| {
            for id in ["api/dev", "web/dev", "web/prod"] {
                write(repository, prefix, id, "info");
            }
        });
        story.stage.pull_request(1, "stacks", "opened").outcome.check(0);
        story.stage.merge(1, "stacks").outcome.check(0);
        story.stage.github.world(|world| world.comments.clear());
        story.heard = story.stage.github.requests().len();
        story
    }

    /// A commit is called so from now on.
    fn call(&mut self, name: &'static str, commit: &str) {
        self.names.retain(|(_, other)| *other != name);
        self.names.insert(0, (commit.to_owned(), name));
    }

    fn propose(&mut self, branch: &str, change: impl FnOnce(&Repository)) -> String {
        let base = self.stage.monorepo.rev("main");
        let head = self.stage.propose(branch, change);
        self.call("base", &base);
        self.call("head", &head);
        head
    }

    /// Holds what the run told against a golden file.
    fn golden(&mut self, name: &str, ran: &Ran) {
        let text = told(&self.stage, ran, self.heard, &self.names);
        golden(&format!("events/{name}.md"), &text);
        self.heard = self.stage.github.requests().len();
    }

    /// The run told GitHub nothing at all.
    fn assert_silent(&mut self, ran: &Ran) {
        ran.outcome.check(0);
        assert_eq!(self.stage.github.requests().len(), self.heard);
        assert_eq!(ran.summary, "### Konverge: nothing to do\n\n");
    }

    /// The run was refused with these words, and neither comment nor state came of it.
    fn assert_refused(&mut self, ran: &Ran, words: &str) {
        assert_ne!(ran.outcome.code, Some(0));
        let stderr = &ran.outcome.stderr;
        assert!(stderr.contains(words) && stderr.contains("hint"), "{stderr}");
        let new = &self.stage.github.requests()[self.heard..];
        // A status that may be required does not wait for ever.
        let fails =
            |request: &Recorded| request.path.contains("/statuses/") && request.body["state"] == "error";
        assert!(
            new.iter()
                .all(|request| request.method == "GET" || fails(request)),
            "{new:?}"
        );
        self.heard += new.len();
    }
}

fn write(repository: &Repository, prefix: &str, id: &str, level: &str) {
    let namespace = format!("{prefix}-{}", id.replace('/', "-"));
    tiny_monorepo::write_stack(repository, id, &namespace, level);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_is_opened_updated_closed_and_merged() {
    let mut story = Story::begin("told-life").await;
    story.propose("add-web", |repository| {
        write(repository, "told-life", "web/dev", "info");
    });
    let opened = story.stage.pull_request(7, "add-web", "opened");
    story.golden("pull-request-opened", &opened);

    story.stage.monorepo.checkout("add-web");
    write(&story.stage.monorepo, "told-life", "web/dev", "debug");
    let head = story.stage.monorepo.commit("Log more");
    story.call("head", &head);
    let updated = story.stage.pull_request(7, "add-web", "synchronize");
    story.golden("pull-request-synchronize", &updated);

    // Closed without a merge: the runner stands on the base branch then.
    let base = story.stage.monorepo.rev("main");
    let payload = payloads::pull_request("closed", 7, &base, ("add-web", &head), "acme/konfig");
    let closed = story.stage.ci("pull_request", &payload, &base, "refs/heads/main");
    story.assert_silent(&closed);

    let merged = story.stage.merge(7, "add-web");
    let tip = story.stage.monorepo.rev("main");
    story.call("tip", &tip);
    story.golden("push-merged", &merged);

    // The same push once more has nothing to do; another branch's is none of our business.
    let again = story.stage.push(&base, &tip);
    story.golden("push-nothing-to-do", &again);
    let elsewhere = payloads::push("topic", &base, &tip, false);
    let elsewhere = story.stage.ci("push", &elsewhere, &tip, "refs/heads/topic");
    story.assert_silent(&elsewhere);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_change_of_the_base_is_shown_once_queued_squashed_and_forced_back() {
    let mut story = Story::with_stacks("told-base").await;
    let before = story.stage.monorepo.rev("main");
    let head = story.propose("paint", |repository| {
        repository.write("base/app.k", "color = \"blue\"\n");
        repository.remove("appops/api");
    });
    let opened = story.stage.pull_request(8, "paint", "opened");
    story.golden("pull-request-shared-change", &opened);

    // The queue puts it on top of the base; nobody is told but the status that is required.
    story.stage.monorepo.checkout(&before);
    let group = story.stage.monorepo.merge("paint");
    story.call("group", &group);
    let queue = format!("refs/heads/gh-readonly-queue/main/pr-8-{before}");
    let payload = payloads::merge_group(8, &before, &group);
    let queued = story.stage.ci("merge_group", &payload, &group, &queue);
    story.golden("merge-group", &queued);

    let squashed = story.stage.squash(8, "paint");
    let tip = story.stage.monorepo.rev("main");
    assert_ne!(tip, head);
    story.call("tip", &tip);
    story.golden("push-squashed", &squashed);

    // History is rewritten: what stands on main now was reviewed once, but has been applied since.
    story
        .stage
        .monorepo
        .checkout("main")
        .git(["reset", "--quiet", "--hard", &before]);
    let payload = payloads::push("main", &tip, &before, true);
    let forced = story.stage.ci("push", &payload, &before, "refs/heads/main");
    forced.outcome.check(3);
    story.call("tip", &before);
    story.golden("push-forced-back", &forced);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_and_people_look_for_drift() {
    let mut story = Story::with_stacks("told-drift").await;
    let tip = story.stage.monorepo.rev("main");
    story.call("tip", &tip);
    let calm = story.stage.schedule();
    story.golden("schedule-calm", &calm);

    let objects = Objects::of(story.stage.cluster).await;
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": format!("{}-web-prod", story.prefix)}});
    objects
        .merge(&settings, "somebody", &json!({"data": {"level": "trace"}}))
        .await;
    let drifted = story.stage.schedule();
    story.golden("schedule-drift", &drifted);

    // A look by hand finds the same, so the issue stays as it is.
    let payload = payloads::workflow_dispatch("main", json!({}));
    let by_hand = story
        .stage
        .ci("workflow_dispatch", &payload, &tip, "refs/heads/main");
    story.golden("workflow-dispatch-drift", &by_hand);
    let payload = payloads::workflow_dispatch("topic", json!({}));
    let elsewhere = story
        .stage
        .ci("workflow_dispatch", &payload, &tip, "refs/heads/topic");
    story.assert_refused(&elsewhere, "the workflow was started on `refs/heads/topic`");
    let payload = payloads::repository_dispatch("on-demand-test", json!({}));
    let call = story
        .stage
        .ci("repository_dispatch", &payload, &tip, "refs/heads/main");
    story.assert_refused(&call, "unknown repository_dispatch event `on-demand-test`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forks_pull_request_is_posted_by_a_job_of_this_repository() {
    let mut story = Story::with_stacks("told-fork").await;
    let head = story.propose("contribute", |repository| {
        write(repository, "told-fork", "web/dev", "debug");
    });
    let (payload, trial) = story.stage.opened(9, "contribute", "opened", "mallory/konfig");
    let tip = story.stage.monorepo.rev("main");
    story.stage.github.world(|world| {
        let read = ["contents", "metadata", "pull_requests"].map(|key| (key, "read"));
        let token = world.tokens["ghs_token"].clone();
        world.tokens.get_mut("ghs_token").unwrap().permissions = read.into();
        world.tokens.insert("ghs_privileged", token);
    });
    let read_only = story.stage.preview(9, &payload, &trial);
    story.golden("pull-request-fork", &read_only);

    // The event that would hand the fork's code our secrets.
    let target = story
        .stage
        .ci("pull_request_target", &payload, &tip, "refs/heads/main");
    story.assert_refused(&target, "pull_request_target is refused");

    // The job that may write reads the fork's commits as data, and never stands on them.
    story.stage.env = vec![("GITHUB_TOKEN", "ghs_privileged".to_owned())];
    let payload = payloads::workflow_run(("contribute", &head), "mallory/konfig", "mallory");
    let captured = {
        story.stage.monorepo.checkout(&head);
        let folder = story.stage.monorepo.path().to_owned();
        story
            .stage
            .ci_in(&folder, "workflow_run", &payload, &tip, "refs/heads/main")
    };
    story.assert_refused(&captured, "a commit from a fork or Dependabot");
    let posted = story.stage.ci("workflow_run", &payload, &tip, "refs/heads/main");
    story.golden("workflow-run-fork", &posted);
    // A run that could tell by itself has told.
    let payload = payloads::workflow_run(("contribute", &head), "acme/konfig", "dev");
    let own = story.stage.ci("workflow_run", &payload, &tip, "refs/heads/main");
    story.assert_silent(&own);
}

/// Dependabot's branches lie in this repository, and its runs may write as little as a fork's.
#[tokio::test(flavor = "multi_thread")]
async fn dependabots_pull_request_gets_the_status_that_is_required() {
    let mut story = Story::with_stacks("told-bot").await;
    let head = story.propose("bump", |repository| {
        write(repository, "told-bot", "web/dev", "debug");
    });
    let (mut payload, trial) = story.stage.opened(9, "bump", "opened", "acme/konfig");
    payload["sender"]["login"] = json!("dependabot[bot]");
    let tip = story.stage.monorepo.rev("main");
    let read_only = story.stage.preview(9, &payload, &trial);
    read_only.outcome.check(0);
    assert_eq!(
        story.stage.github.requests().len(),
        story.heard,
        "it may not write"
    );
    let payload = payloads::workflow_run(("bump", &head), "acme/konfig", "dependabot[bot]");
    let posted = story.stage.ci("workflow_run", &payload, &tip, "refs/heads/main");
    story.golden("workflow-run-dependabot", &posted);
}

/// As `actions/checkout` leaves it: the trial merge alone, without the commits that it joins.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_of_one_commit_shows_the_same() {
    let mut story = Story::begin("told-shallow").await;
    story.propose("add-web", |repository| {
        write(repository, "told-shallow", "web/dev", "info");
    });
    let (payload, trial) = story.stage.opened(7, "add-web", "opened", "acme/konfig");
    let monorepo = &story.stage.monorepo;
    monorepo.git(["update-ref", "refs/pull/7/merge", &trial]);
    let checkout = Repository::init();
    let origin = format!("file://{}", monorepo.path().display());
    checkout.git(["remote", "add", "origin", &origin]);
    checkout.git(["fetch", "--quiet", "--depth=1", "origin", "refs/pull/7/merge"]);
    checkout.checkout(&trial);
    assert_eq!(checkout.git(["rev-list", "--count", "HEAD"]), "1");
    let event = ("pull_request", "refs/pull/7/merge");
    let shallow = story
        .stage
        .ci_in(checkout.path(), event.0, &payload, &trial, event.1);
    shallow.outcome.check(0);
    let shown = |story: &Story| {
        let (_, body) = story.stage.comments().remove(0);
        let lines = body.lines().skip(1).filter(|line| !line.starts_with("<sub>"));
        lines.map(without_runs).collect::<Vec<_>>().join("\n")
    };
    let first = shown(&story);
    story.stage.preview(7, &payload, &trial).outcome.check(0);
    assert_eq!(first, shown(&story));
    assert!(first.contains("web/dev"), "{first}");
}

/// A pull request that goes to another branch now is previewed against that. GitHub's trial merge may still be one with
/// the old branch, where nobody protects what grants power.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_whose_base_was_changed_is_previewed_against_the_new_one() {
    let mut stage = Stage::small("").await;
    let elsewhere = stage.scratch.path().join("elsewhere");
    stage.monorepo.branch("release");
    let config = stage.monorepo.read("konverge.yaml");
    let store = stage.scratch.path().join("store");
    let config = config.replace(&store.display().to_string(), &elsewhere.display().to_string());
    stage.monorepo.write("konverge.yaml", config);
    stage.stack("rebased-old/dev", &[("rebased-old", "one")]);
    stage.monorepo.commit("Another branch");

    stage.monorepo.checkout("main").branch("change");
    stage.stack("rebased/dev", &[("rebased", "one")]);
    let head = stage.monorepo.commit("A stack");
    let (mut payload, _) = stage.opened(7, "change", "opened", "acme/konfig");
    payload["action"] = json!("edited");
    payload["changes"] =
        json!({"base": {"ref": {"from": "release"}, "sha": {"from": stage.monorepo.rev("release")}}});
    stage.monorepo.checkout("release");
    let stale = stage.monorepo.merge("change");
    stage.preview(7, &payload, &stale).outcome.check(0);

    let (_, body) = stage.comments().remove(0);
    let base = stage.monorepo.rev("main");
    assert!(body.contains(&format!("base `{}`", &base[..7])), "{body}");
    assert!(
        body.contains("rebased/dev") && !body.contains("rebased-old"),
        "{body}"
    );
    let recorded = stage
        .states()
        .await
        .reviews()
        .latest(7, &head.parse().unwrap())
        .await;
    assert_eq!(recorded.unwrap().len(), 1);
    assert!(!elsewhere.exists(), "the old base's configuration was obeyed");

    // Another title changes nothing.
    payload["changes"] = json!({"title": {"from": "Add a stack"}});
    let told = stage.github.requests().len();
    let edited = stage.preview(7, &payload, &stale);
    edited.outcome.check(0);
    assert_eq!(stage.github.requests().len(), told);
    assert_eq!(edited.summary, "### Konverge: nothing to do\n\n");
}

/// Two pull requests, each fine alone. The queue's group is really compiled, and the status that is required says no.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_does_not_compile_together_is_no_success() {
    let mut stage = Stage::small("").await;
    let color = |stage: &Stage, name: &str| {
        stage
            .monorepo
            .write("base/paint.k", format!("{name} = \"blue\"\n"));
    };
    let stack = |stage: &Stage, id: &str, name: &str| {
        let map = id.replace('/', "-");
        let text = format!(
            "import base.paint\n\nresources = [{{id = \"v1:ConfigMap:default:{map}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{map}\", namespace = \"default\"}}, data = {{value = paint.{name}}}}}}}]\n"
        );
        tiny_monorepo::write_program(&stage.monorepo, id, &text);
    };
    color(&stage, "color");
    stack(&stage, "grouped-a/dev", "color");
    let base = stage.monorepo.commit("A stack");
    stage.reviewed(7, "rename", |stage| {
        color(stage, "paint");
        stack(stage, "grouped-a/dev", "paint");
    });
    stage.reviewed(8, "another", |stage| stack(stage, "grouped-b/dev", "color"));
    let comments = stage.comments();
    let recorded = stage.states().await.reviews().list().await.unwrap();

    stage.monorepo.checkout(&base);
    stage.monorepo.merge("rename");
    let group = stage.monorepo.merge("another");
    let queue = format!("refs/heads/gh-readonly-queue/main/pr-8-{base}");
    let payload = payloads::merge_group(8, &base, &group);
    let queued = stage.ci("merge_group", &payload, &group, &queue);
    queued.outcome.check(1);
    assert_eq!(
        stage.status(&group, "konverge/preview").as_deref(),
        Some("failure")
    );
    assert!(
        queued.summary.contains("appops/grouped-b/dev/main.k"),
        "{}",
        queued.summary
    );
    // A group may be recreated or thrown away: nobody hears of it, and nothing is remembered.
    assert_eq!(stage.comments(), comments);
    assert_eq!(stage.states().await.reviews().list().await.unwrap(), recorded);
}
