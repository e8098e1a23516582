//! `konverge ci` in the jobs of a pipeline, with the variables that GitLab documents.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tempfile::TempDir;

use crate::support::{
    cluster::Cluster,
    git::Repository,
    gitlab::{FakeGitlab, HERE, MergeRequest, World},
    process::{Konverge, Outcome},
    tiny_monorepo,
};

/// A monorepo of ConfigMaps at a fake GitLab.
struct JobStage {
    gitlab: FakeGitlab,
    konfig: Repository,
    cluster: &'static Cluster,
    scratch: TempDir,
    runs: u64,
    /// The last pipeline.
    pipeline: u64,
    /// Who started the pipelines, as GitLab says it.
    starter: &'static str,
}

/// What a job left behind.
struct Ran {
    outcome: Outcome,
    summary: String,
}

impl JobStage {
    /// `more` is added to konverge.yaml.
    async fn start(more: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let store = scratch.path().join("store");
        std::fs::create_dir(&store).unwrap();
        let konfig = Repository::init();
        konfig.write("kcl.mod", "[package]\nname = \"small\"\nversion = \"0.1.0\"\n");
        let config = format!(
            "version: 1\nstate: {{id: gitlab-jobs, url: 'file://{}'}}\nclusters: {{test: {{}}}}\nkcl: {{version: 0.13.2}}\n{more}",
            store.display()
        );
        konfig.write("konverge.yaml", config).commit("No project yet");
        let gitlab = FakeGitlab::start(World::of(&konfig)).await;
        Self {
            gitlab,
            konfig,
            cluster: Cluster::shared(),
            scratch,
            runs: 0,
            pipeline: 500,
            starter: "ada",
        }
    }

    /// Writes the stack `shop/dev` with one ConfigMap of one value into the working tree.
    fn stack(&self, map: &str, value: &str) {
        let resource = format!(
            "{{id = \"v1:ConfigMap:default:{map}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{map}\", namespace = \"default\"}}, data = {{value = \"{value}\"}}}}}}"
        );
        tiny_monorepo::write_program(
            &self.konfig,
            "shop/dev",
            &format!("resources = [\n{resource}\n]\n"),
        );
    }

    /// Proposes a value on a branch: the head of the merge request.
    fn propose(&self, iid: u64, branch: &str, map: &str, value: &str) -> String {
        self.konfig.checkout("main").branch(branch);
        self.stack(map, value);
        let head = self.konfig.commit(branch);
        let merge_request = MergeRequest::open(iid, branch, &head);
        self.gitlab
            .world(|world| world.merge_requests.push(merge_request));
        head
    }

    /// Merges as GitLab does: the tip of `main`.
    fn merge(&self, iid: u64, branch: &str) -> String {
        self.konfig.checkout("main");
        let tip = self.konfig.merge(branch);
        self.gitlab.world(|world| {
            let mut all = world.merge_requests.iter_mut();
            let one = all.find(|one| one.iid == iid).unwrap();
            (one.state, one.merged_at) = ("merged", Some("2026-11-29T11:00:00Z"));
            one.merge_commit = Some(tip.clone());
        });
        tip
    }

    /// Runs `konverge ci` in the job of a new pipeline.
    fn job(&mut self, source: &str, sha: &str, more: &[(&str, &str)]) -> Ran {
        self.pipeline += 1;
        let (pipeline, starter) = (self.pipeline, self.starter);
        self.gitlab.world(|world| {
            world.pipelines.insert(pipeline, ("running", starter));
            world.pipeline_commits.insert(pipeline, sha.to_owned());
        });
        self.retry(source, sha, more)
    }

    /// Runs it in another job of the last pipeline.
    fn retry(&mut self, source: &str, sha: &str, more: &[(&str, &str)]) -> Ran {
        self.runs += 1;
        let (pipeline, id, name) = (self.pipeline, 9000 + self.runs, "konverge");
        self.gitlab
            .world(|world| world.pipeline_jobs.push((pipeline, id, name.to_owned())));
        let folder = self.scratch.path().join(self.runs.to_string());
        std::fs::create_dir(&folder).unwrap();
        let summary = folder.join("summary.md");
        self.konfig.checkout(sha);
        let mut variables: BTreeMap<&str, String> = [
            ("GITLAB_CI", "true"),
            ("CI", "true"),
            ("CI_PIPELINE_SOURCE", source),
            ("CI_PROJECT_PATH", HERE),
            ("CI_PROJECT_ID", "7"),
            ("CI_COMMIT_SHA", sha),
            ("CI_COMMIT_BEFORE_SHA", &"0".repeat(40)),
            ("CI_DEFAULT_BRANCH", "main"),
            ("CI_COMMIT_BRANCH", "main"),
            ("GITLAB_USER_LOGIN", "ada"),
            ("GITLAB_TOKEN", "glpat-bot"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into();
        variables.extend([
            ("CI_SERVER_URL", self.gitlab.url()),
            ("CI_API_V4_URL", self.gitlab.api_url()),
            ("CI_PIPELINE_ID", pipeline.to_string()),
            ("CI_JOB_ID", id.to_string()),
            ("CI_JOB_NAME", name.to_owned()),
            ("KONVERGE_SUMMARY", summary.display().to_string()),
        ]);
        variables.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let konverge = Konverge::new(["ci"])
            .with_kcl()
            .dir(self.konfig.path())
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("XDG_CACHE_HOME", folder.join("caches"));
        let with = |konverge: Konverge, (name, value): (&str, String)| match value.as_str() {
            "" => konverge,
            _ => konverge.env(name, value),
        };
        let outcome = variables.into_iter().fold(konverge, with).run();
        self.konfig.checkout("main");
        Ran {
            outcome,
            summary: std::fs::read_to_string(summary).unwrap_or_default(),
        }
    }

    /// The job of a merge request's pipeline for its head.
    fn preview(&mut self, iid: u64, head: &str, more: &[(&str, &str)]) -> Ran {
        self.preview_by(Self::job, iid, head, more)
    }

    /// A retry of that job, in the same pipeline.
    fn retry_preview(&mut self, iid: u64, head: &str, more: &[(&str, &str)]) -> Ran {
        self.preview_by(Self::retry, iid, head, more)
    }

    fn preview_by(
        &mut self,
        run: impl FnOnce(&mut Self, &str, &str, &[(&str, &str)]) -> Ran,
        iid: u64,
        head: &str,
        more: &[(&str, &str)],
    ) -> Ran {
        let (base, iid) = (self.konfig.rev("main"), iid.to_string());
        let mut variables = vec![
            ("CI_COMMIT_BRANCH", ""),
            ("CI_MERGE_REQUEST_IID", iid.as_str()),
            ("CI_MERGE_REQUEST_EVENT_TYPE", "detached"),
            ("CI_MERGE_REQUEST_PROJECT_ID", "7"),
            ("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "7"),
            ("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "topic"),
            ("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main"),
            ("CI_MERGE_REQUEST_DIFF_BASE_SHA", base.as_str()),
        ];
        variables.extend(more);
        run(self, "merge_request_event", head, &variables)
    }

    fn notes(&self) -> Vec<String> {
        self.gitlab
            .world(|world| world.notes.iter().map(|note| note.body.clone()).collect())
    }

    fn status(&self, sha: &str, name: &str) -> Option<String> {
        self.gitlab.world(|world| {
            let of = world
                .statuses
                .iter()
                .rfind(|(at, status)| at == sha && status["name"] == name);
            of.map(|(_, status)| status["status"].as_str().unwrap().to_owned())
        })
    }

    async fn value(&self, map: &str) -> Option<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.client().await, "default");
        let found = maps.get_opt(map).await.unwrap();
        found.map(|map| map.data.unwrap()["value"].clone())
    }
}

/// Without deployments, which GitLab does not have.
const APPLIES: &str = "apply: {deployments: false}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_request_is_previewed_and_after_its_merge_exactly_that_is_applied() {
    let mut stage = JobStage::start("").await;
    let map = "gitlab-reviewed";
    let head = stage.propose(1, "topic", map, "one");
    // In a pipeline for merged results the commit is the merge.
    let base = stage.konfig.checkout("main").rev("main");
    let trial = stage.konfig.merge("topic");
    stage.konfig.git(["reset", "--quiet", "--hard", base.as_str()]);
    let merged_result = [
        ("CI_MERGE_REQUEST_EVENT_TYPE", "merged_result"),
        ("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", head.as_str()),
        ("CI_MERGE_REQUEST_TARGET_BRANCH_SHA", base.as_str()),
    ];
    let ran = stage.preview(1, &trial, &merged_result);
    ran.outcome.check(0);
    let notes = stage.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("shop/dev") && notes[0].contains(map),
        "{}",
        notes[0]
    );
    assert!(ran.summary.contains("shop/dev"), "{}", ran.summary);
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some("success")
    );
    assert_eq!(stage.status(&trial, "konverge/preview"), None);

    // Another push: the same note.
    stage.konfig.checkout("topic").write("notes.md", "x");
    let head = stage.konfig.commit("Notes");
    stage.gitlab.world(|world| {
        let version = (head.clone(), "2026-11-29T10:30:00.000Z".to_owned());
        world.merge_requests[0].versions.push(version);
    });
    stage.konfig.checkout("main");
    stage.preview(1, &head, &[]).outcome.check(0);
    let notes = stage.notes();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains(&head[..7]), "{}", notes[0]);
    assert_eq!(
        stage.value(map).await,
        None,
        "nothing is applied before the merge"
    );

    let tip = stage.merge(1, "topic");
    let applied = stage.job("push", &tip, &[]);
    applied.outcome.check(0);
    assert_eq!(
        stage.value(map).await.as_deref(),
        Some("one"),
        "{}",
        applied.outcome.stderr
    );
    assert_eq!(stage.status(&tip, "konverge/apply").as_deref(), Some("success"));
    let notes = stage.notes();
    assert!(notes.iter().any(|note| note.contains("applied")), "{notes:?}");
    assert!(stage.gitlab.world(|world| world.issues.is_empty()));
}

/// What the retry showed is what is applied, also where the state has changed between both.
#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_retried_preview_is_that_of_what_its_note_shows() {
    let mut stage = JobStage::start("").await;
    let map = "gitlab-retried";
    let head = stage.propose(1, "first", map, "one");
    stage.konfig.checkout("main");
    stage.preview(1, &head, &[]).outcome.check(0);
    let tip = stage.merge(1, "first");
    stage.job("push", &tip, &[]).outcome.check(0);

    let head = stage.propose(2, "second", map, "two");
    stage.konfig.checkout("main");
    stage.preview(2, &head, &[]).outcome.check(0);
    // Somebody changes it by hand: another plan.
    let maps: Api<ConfigMap> = Api::namespaced(stage.cluster.client().await, "default");
    let patch = serde_json::json!({"data": {"value": "by hand"}});
    maps.patch(map, &Default::default(), &kube::api::Patch::Merge(patch))
        .await
        .unwrap();
    stage.retry_preview(2, &head, &[]).outcome.check(0);
    let notes = stage.gitlab.world(|world| world.notes.clone());
    let of_second: Vec<_> = notes.iter().filter(|note| note.iid == 2).collect();
    assert!(
        of_second.len() == 1 && of_second[0].body.contains("by hand"),
        "{of_second:?}"
    );
    let page = format!("/-/pipelines/{}#attempt-2", stage.pipeline);
    let status = stage
        .gitlab
        .world(|world| world.statuses.last().unwrap().1.clone());
    assert!(
        status["target_url"].as_str().unwrap().ends_with(&page),
        "{status}"
    );

    let tip = stage.merge(2, "second");
    let applied = stage.job("push", &tip, &[]);
    applied.outcome.check(0);
    assert_eq!(
        stage.value(map).await.as_deref(),
        Some("two"),
        "{}",
        applied.summary
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_retries_an_apply_has_not_pushed_and_needs_a_role() {
    let mut stage = JobStage::start("policy: {actors: [bob, eve]}\n").await;
    let map = "gitlab-retrier";
    let head = stage.propose(1, "topic", map, "one");
    stage.konfig.checkout("main");
    stage.preview(1, &head, &[]).outcome.check(0);
    let tip = stage.merge(1, "topic");
    // The first attempt dies before it is Konverge's; eve, who may only read, retries it.
    let pipeline = stage.pipeline + 1;
    stage.gitlab.world(|world| {
        let first = (pipeline, 8999, "konverge".to_owned());
        world.pipeline_jobs.push(first);
    });
    let retried = stage.job("push", &tip, &[("GITLAB_USER_LOGIN", "eve")]);
    assert_ne!(retried.outcome.code, Some(0), "{}", retried.outcome.stderr);
    assert_eq!(stage.value(map).await, None);
    stage
        .retry("push", &tip, &[("GITLAB_USER_LOGIN", "bob")])
        .outcome
        .check(0);
    assert_eq!(stage.value(map).await.as_deref(), Some("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_where_the_attempt_is_unknown() {
    let mut stage = JobStage::start("").await;
    let head = stage.propose(1, "topic", "gitlab-no-attempt", "one");
    stage.konfig.checkout("main");
    let ran = stage.preview(1, &head, &[("CI_JOB_NAME", "")]);
    assert_ne!(ran.outcome.code, Some(0));
    assert!(
        ran.outcome.stderr.contains("CI_JOB_NAME"),
        "{}",
        ran.outcome.stderr
    );
    assert_eq!(stage.notes(), [] as [String; 0]);
    assert_eq!(stage.status(&head, "konverge/preview"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_reviewed_is_an_issue_until_somebody_who_may_push_approves_its_digest() {
    let mut stage = JobStage::start("").await;
    let map = "gitlab-unreviewed";
    stage.stack(map, "one");
    let tip = stage.konfig.commit("Straight to main");
    let stopped = stage.job("push", &tip, &[]);
    assert_ne!(stopped.outcome.code, Some(0), "{}", stopped.outcome.stderr);
    assert_eq!(stage.value(map).await, None);
    let issue = stage.gitlab.world(|world| world.issues[0].clone());
    assert_eq!(issue.labels, ["konverge-unreviewed"]);
    let mut words = issue.description.split(|c: char| !c.is_ascii_hexdigit());
    let digest = words.find(|word| word.len() == 64).unwrap().to_owned();
    let approved = [
        ("KONVERGE_APPROVE", digest.as_str()),
        ("KONVERGE_REASON", "I looked"),
    ];

    // The runner says `ada`, who has retried the job. GitLab says who started the pipeline: eve, who may only read.
    stage.starter = "eve";
    let refused = stage.job("web", &tip, &approved);
    refused.outcome.check(3);
    assert!(
        refused
            .outcome
            .stderr
            .contains("eve started this run, and is not known to be allowed to push"),
        "{}",
        refused.outcome.stderr
    );
    assert_eq!(stage.value(map).await, None);

    stage.starter = "bob";
    let applied = stage.job("web", &tip, &approved);
    applied.outcome.check(0);
    assert_eq!(stage.value(map).await.as_deref(), Some("one"));
    assert_eq!(stage.gitlab.world(|world| world.issues[0].state), "closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_where_whoever_starts_a_pipeline_may_overwrite_its_variables() {
    let mut stage = JobStage::start("").await;
    let map = "gitlab-variables";
    let head = stage.propose(1, "topic", map, "one");
    stage.konfig.checkout("main");
    stage.gitlab.world(|world| world.variables_role = "developer");
    stage.preview(1, &head, &[]).outcome.check(0);
    let tip = stage.merge(1, "topic");
    let stopped = stage.job("push", &tip, &[]);
    assert_ne!(stopped.outcome.code, Some(0));
    assert!(
        stopped
            .outcome
            .stderr
            .contains("Minimum role to use pipeline variables"),
        "{}",
        stopped.outcome.stderr
    );
    assert_eq!(stage.value(map).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_merge_request_of_a_fork_is_previewed_without_a_store_a_cluster_or_a_note() {
    let mut stage = JobStage::start("").await;
    let head = stage.propose(1, "topic", "gitlab-fork", "one");
    stage.konfig.checkout("main");
    stage
        .gitlab
        .world(|world| world.merge_requests[0].source_project = Some(99));
    // A member has started its pipeline in this project, whose secrets it has.
    let fork = [("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "99")];
    let ran = stage.preview(1, &head, &fork);
    ran.outcome.check(0);
    assert!(ran.summary.contains("shop/dev"), "{}", ran.summary);
    assert_eq!(stage.notes(), [] as [String; 0]);
    let asked = stage.gitlab.requests();
    assert!(asked.iter().all(|request| request.method == "GET"), "{asked:?}");
    let store = stage.scratch.path().join("store");
    assert_eq!(std::fs::read_dir(store).unwrap().count(), 0);
}

/// Approvals count with the flag alone, since GitLab does not say who pushed; and only of the last head, by others.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_that_needs_approvals_is_applied_with_one_of_its_last_head() {
    let map = "gitlab-approved";
    let mut stage = JobStage::start("policy: {approvals: 1}\n").await;
    let head = stage.propose(1, "topic", map, "one");
    stage.konfig.checkout("main");
    stage.preview(1, &head, &[]).outcome.check(0);
    let tip = stage.merge(1, "topic");
    let approve = |stage: &JobStage, by: &'static str, at: &'static str| {
        stage
            .gitlab
            .world(|world| world.merge_requests[0].approvals = vec![(by, Some(at))]);
    };
    approve(&stage, "bob", "2026-11-29T10:30:00.000Z");
    let stopped = stage.job("push", &tip, &[]);
    assert_ne!(stopped.outcome.code, Some(0));
    let said = &stopped.summary;
    assert!(said.contains("policy.unknown_pushers"), "{said}");
    assert_eq!(stage.value(map).await, None);

    stage.konfig.replace(
        "konverge.yaml",
        "policy: {approvals: 1}",
        "policy: {approvals: 1, unknown_pushers: true}",
    );
    let tip = stage.konfig.commit("Approvals count without it");
    for (by, at) in [
        // Its author; somebody who may only read; before there was a head.
        ("ada", "2026-11-29T10:30:00.000Z"),
        ("eve", "2026-11-29T10:30:00.000Z"),
        ("bob", "2026-11-29T09:30:00.000Z"),
    ] {
        approve(&stage, by, at);
        let stopped = stage.job("push", &tip, &[]);
        assert_ne!(stopped.outcome.code, Some(0), "{by} {at}");
        assert_eq!(stage.value(map).await, None, "{by} {at}");
    }
    approve(&stage, "bob", "2026-11-29T10:30:00.000Z");
    stage.job("push", &tip, &[]).outcome.check(0);
    assert_eq!(stage.value(map).await.as_deref(), Some("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_drifted_is_an_issue_whose_digest_restores_it() {
    let mut stage = JobStage::start("").await;
    let map = "gitlab-drift";
    let head = stage.propose(1, "topic", map, "one");
    stage.konfig.checkout("main");
    stage.preview(1, &head, &[]).outcome.check(0);
    let tip = stage.merge(1, "topic");
    stage.job("push", &tip, &[]).outcome.check(0);
    let maps: Api<ConfigMap> = Api::namespaced(stage.cluster.client().await, "default");
    let patch = serde_json::json!({"data": {"value": "by hand"}});
    maps.patch(map, &Default::default(), &kube::api::Patch::Merge(patch))
        .await
        .unwrap();
    stage.job("schedule", &tip, &[]).outcome.check(0);
    let issues = stage.gitlab.world(|world| world.issues.clone());
    assert_eq!(issues.len(), 1, "{issues:?}");
    assert!(
        issues[0].description.contains("by hand"),
        "{}",
        issues[0].description
    );
    assert!(
        issues[0]
            .description
            .contains("run the pipeline of the default branch"),
        "{}",
        issues[0].description
    );
    let before = stage.notes().len();

    // Its digest restores it. Who approved that is a note on the issue, not on the merge request of its number.
    let mut words = issues[0].description.split(|c: char| !c.is_ascii_hexdigit());
    let digest = words.find(|word| word.len() == 64).unwrap().to_owned();
    let approved = [("KONVERGE_APPROVE", digest.as_str())];
    stage.job("web", &tip, &approved).outcome.check(0);
    assert_eq!(stage.value(map).await.as_deref(), Some("one"));
    let notes = stage.gitlab.world(|world| world.notes.clone());
    assert_eq!(notes.len(), before + 1, "{notes:?}");
    assert_eq!(
        (notes[before].on.as_str(), notes[before].iid),
        ("issues", issues[0].iid)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_are_not_given_and_stop_the_apply_until_they_are_given_up() {
    for (more, code) in [("apply: {deployments: true}\n", None), (APPLIES, Some(0))] {
        let mut stage = JobStage::start(more).await;
        let head = stage.propose(1, "topic", "gitlab-deployments", "one");
        stage.konfig.checkout("main");
        stage.preview(1, &head, &[]).outcome.check(0);
        let tip = stage.merge(1, "topic");
        let applied = stage.job("push", &tip, &[]);
        match code {
            Some(code) => drop(applied.outcome.expect(code)),
            None => {
                assert_ne!(applied.outcome.code, Some(0));
                let said = &applied.outcome.stderr;
                assert!(said.contains("GitLab has no deployments"), "{said}");
            }
        }
    }
}
