//! The whole job on real parts: a pull request, its update, its merge and a scheduled run, against the real control
//! plane and MinIO, with GitHub played by the fake. Afterwards the cluster and the bucket are read.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use object_store::ObjectStore;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    cluster::Cluster,
    git::Repository,
    github::{FakeGithub, Pull, World},
    minio::Minio,
    process::{Konverge, Outcome},
};

/// A monorepo on GitHub with a cluster and a bucket.
struct Stage {
    monorepo: Repository,
    github: FakeGithub,
    cluster: &'static Cluster,
    bucket: String,
    scratch: TempDir,
    runs: u64,
}

/// What a run in GitHub Actions left behind.
struct Ran {
    outcome: Outcome,
    summary: String,
    outputs: String,
}

impl Stage {
    /// The example monorepo with no project yet, so that every stack that is applied was reviewed.
    async fn set_up() -> Self {
        let minio = Minio::shared();
        let bucket = minio.bucket("main-job");
        let monorepo = Repository::konfig_example();
        monorepo.git(["rm", "-rq", "appops"]);
        let config = format!(
            "version: 1\nstate:\n  id: main-job\n  url: s3://{bucket}/konverge\n  options: {{endpoint: '{}', region: us-east-1, path_style: 'true', allow_http: 'true'}}\n\
             clusters:\n  test: {{}}\nkcl: {{version: 0.13.2}}\n",
            minio.endpoint()
        );
        monorepo.write("konverge.yaml", config).commit("No project yet");
        let github = FakeGithub::start(World::new()).await;
        let scratch = tempfile::tempdir().unwrap();
        Self {
            monorepo,
            github,
            cluster: Cluster::with_controllers(),
            bucket,
            scratch,
            runs: 0,
        }
    }

    /// Brings files of the example back, changed, on a branch.
    fn propose(&self, branch: &str, change: impl FnOnce(&Repository)) -> String {
        self.monorepo.checkout("main").branch(branch);
        change(&self.monorepo);
        self.monorepo.commit(branch)
    }

    /// Runs `konverge ci` as the runner would, on a checkout of `sha`.
    fn ci(&mut self, event: &str, payload: &Value, sha: &str, git_ref: &str) -> Ran {
        self.runs += 1;
        let folder = self.scratch.path().join(self.runs.to_string());
        std::fs::create_dir(&folder).unwrap();
        let payload_path = folder.join("event.json");
        std::fs::write(&payload_path, payload.to_string()).unwrap();
        let (summary, outputs) = (folder.join("summary.md"), folder.join("outputs"));
        self.monorepo.checkout(sha);
        let outcome = Konverge::new(["ci"])
            .with_kcl()
            .dir(self.monorepo.path())
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_EVENT_NAME", event)
            .env("GITHUB_EVENT_PATH", &payload_path)
            .env("GITHUB_REPOSITORY", "acme/konfig")
            .env("GITHUB_SHA", sha)
            .env("GITHUB_REF", git_ref)
            .env("GITHUB_RUN_ID", (5000 + self.runs).to_string())
            .env("GITHUB_RUN_ATTEMPT", "1")
            .env("GITHUB_ACTOR", "dev")
            .env("GITHUB_SERVER_URL", "https://github.com")
            .env("GITHUB_API_URL", self.github.api_url())
            .env("GITHUB_TOKEN", "ghs_token")
            .env("GITHUB_STEP_SUMMARY", &summary)
            .env("GITHUB_OUTPUT", &outputs)
            .env("RUNNER_TEMP", &folder)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("AWS_ACCESS_KEY_ID", Minio::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", Minio::SECRET_KEY)
            .run();
        let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
        Ran {
            outcome,
            summary: read(&summary),
            outputs: read(&outputs),
        }
    }

    /// A pull request's event on its trial merge.
    fn pull_request(&mut self, number: u64, branch: &str, action: &str) -> Ran {
        let (base, head) = (self.monorepo.rev("main"), self.monorepo.rev(branch));
        self.monorepo.checkout(&base);
        let trial = self.monorepo.merge(branch);
        self.github.world(|world| {
            world.pulls.retain(|pull| pull.number != number);
            world.pulls.push(Pull {
                number,
                head: head.clone(),
                merged_at: None,
                merge_commit: None,
                head_repository: Some("acme/konfig".into()),
            });
        });
        let payload = json!({
            "action": action,
            "number": number,
            "pull_request": {
                "number": number, "merged": false, "user": {"login": "dev"},
                "base": {"sha": base, "ref": "main", "repo": {"full_name": "acme/konfig"}},
                "head": {"sha": head, "ref": branch, "repo": {"full_name": "acme/konfig"}},
            },
            "repository": {"full_name": "acme/konfig", "default_branch": "main"},
        });
        self.ci(
            "pull_request",
            &payload,
            &trial,
            &format!("refs/pull/{number}/merge"),
        )
    }

    /// GitHub's merge button: the pull request is merged, and `main` is pushed.
    fn merge(&mut self, number: u64, branch: &str) -> Ran {
        self.monorepo.checkout("main");
        let before = self.monorepo.rev("main");
        let after = self.monorepo.merge(branch);
        self.github.world(|world| {
            for pull in world.pulls.iter_mut().filter(|pull| pull.number == number) {
                pull.merged_at = Some("2026-11-21T10:00:00Z".into());
                pull.merge_commit = Some(after.clone());
            }
            world.commit_pulls.insert(after.clone(), vec![number]);
        });
        self.push(&before, &after)
    }

    fn push(&mut self, before: &str, after: &str) -> Ran {
        let payload = json!({
            "ref": "refs/heads/main", "before": before, "after": after, "forced": false,
            "repository": {"full_name": "acme/konfig", "default_branch": "main"},
        });
        self.ci("push", &payload, after, "refs/heads/main")
    }

    fn schedule(&mut self) -> Ran {
        let sha = self.monorepo.rev("main");
        let payload = json!({"schedule": "17 5 * * *", "repository": {"full_name": "acme/konfig", "default_branch": "main"}});
        self.ci("schedule", &payload, &sha, "refs/heads/main")
    }

    fn comments(&self) -> Vec<(u64, String)> {
        self.github
            .world(|world| world.comments.iter().map(|c| (c.id, c.body.clone())).collect())
    }

    /// The newest state of a status on a commit.
    fn status(&self, sha: &str, context: &str) -> Option<String> {
        self.github.world(|world| {
            let of = |(at, body): &(String, Value)| at == sha && body["context"] == context;
            world
                .statuses
                .iter()
                .rfind(|status| of(status))
                .map(|(_, body)| body["state"].as_str().unwrap().to_owned())
        })
    }

    async fn keys(&self) -> Vec<String> {
        use futures::TryStreamExt as _;
        let store = Minio::shared().client(&self.bucket);
        let mut keys: Vec<_> = store
            .list(None)
            .map_ok(|meta| meta.location.to_string())
            .try_collect()
            .await
            .unwrap();
        keys.sort();
        keys
    }

    async fn deployment(&self) -> Option<Deployment> {
        let api: Api<Deployment> = Api::namespaced(self.cluster.client().await, "storefront-dev");
        api.get_opt("storefront").await.unwrap()
    }

    fn writes(&self) -> usize {
        self.cluster
            .audit()
            .iter()
            .filter(|event| event.writes() && event.is_in("storefront-dev"))
            .count()
    }
}

impl Outcome {
    /// The exit code, with everything that was printed if it is another.
    fn check(&self, code: i32) {
        assert_eq!(
            self.code,
            Some(code),
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
    }
}

/// The project `storefront` of the example, its stack `dev` alone.
fn storefront(monorepo: &Repository) {
    monorepo.git(["checkout", "-q", "main~1", "--", "appops/storefront"]);
    monorepo.git([
        "rm",
        "-rqf",
        "appops/storefront/staging",
        "appops/storefront/prod",
    ]);
}

fn image(deployment: &Deployment) -> String {
    let spec = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    spec.containers[0].image.clone().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_its_update_its_merge_and_a_scheduled_run() {
    let mut stage = Stage::set_up().await;

    // The pull request: a comment, a status, a record; nothing is written to the cluster, and no state.
    let head = stage.propose("add-storefront", storefront);
    let opened = stage.pull_request(7, "add-storefront", "opened");
    opened.outcome.check(0);
    let comments = stage.comments();
    assert_eq!(comments.len(), 1, "{comments:?}");
    let (comment, body) = comments[0].clone();
    assert!(body.starts_with("<!-- konverge:v1 "), "{body}");
    assert!(
        body.contains("storefront/dev") && body.contains("Deployment"),
        "{body}"
    );
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some("success")
    );
    assert!(opened.summary.contains("storefront/dev"), "{}", opened.summary);
    assert!(opened.outputs.contains("has-changes"), "{}", opened.outputs);
    assert!(stage.deployment().await.is_none());
    assert_eq!(stage.writes(), 0);
    let keys = stage.keys().await;
    assert!(
        keys.iter().any(|key| key.contains(&format!("reviews/7/{head}"))),
        "{keys:?}"
    );
    assert!(!keys.iter().any(|key| key.contains("/state/")), "{keys:?}");

    // The same again shows the same bytes: only the run differs, so the comment is edited in place.
    let again = stage.pull_request(7, "add-storefront", "synchronize");
    again.outcome.check(0);
    let without_marker = |body: &str| {
        body.lines()
            .skip(1)
            .filter(|l| !l.contains("/runs/"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let comments = stage.comments();
    assert_eq!(comments.len(), 1);
    assert_eq!(comments[0].0, comment);
    assert_eq!(without_marker(&comments[0].1), without_marker(&body));

    // The update: the same comment says the new thing.
    stage.monorepo.checkout("add-storefront").replace(
        "appops/storefront/dev/main.k",
        "LOG_LEVEL = \"debug\"",
        "LOG_LEVEL = \"info\"",
    );
    let head = stage.monorepo.commit("Log more");
    stage
        .pull_request(7, "add-storefront", "synchronize")
        .outcome
        .check(0);
    let comments = stage.comments();
    assert_eq!((comments.len(), comments[0].0), (1, comment));
    assert!(comments[0].1.contains(&head[..7]), "{}", comments[0].1);

    // The merge: exactly that happens.
    let merged = stage.merge(7, "add-storefront");
    merged.outcome.check(0);
    let tip = stage.monorepo.rev("main");
    assert_eq!(
        stage.status(&tip, "konverge/apply").as_deref(),
        Some("success"),
        "{}",
        merged.outcome.stderr
    );
    let deployment = stage.deployment().await.expect("it was applied");
    assert!(image(&deployment).contains("storefront"));
    assert_eq!(
        deployment.annotations().get("konverge/stack").map(String::as_str),
        Some("storefront/dev")
    );
    let keys = stage.keys().await;
    assert!(
        keys.iter().any(
            |key| key.contains("stacks/storefront/dev/state/") || key.contains("storefront%2Fdev/state/")
        ),
        "{keys:?}"
    );

    // Apply twice: the second writes nothing.
    let writes = stage.writes();
    stage.push(&tip, &tip).outcome.check(0);
    assert_eq!(stage.writes(), writes);

    // Something that nobody reviewed stops the stack before anything of it is touched.
    stage.monorepo.checkout("main").replace(
        "appops/storefront/dev/main.k",
        "LOG_LEVEL = \"info\"",
        "LOG_LEVEL = \"trace\"",
    );
    let pushed = stage.monorepo.commit("Straight to main");
    let stopped = stage.push(&tip, &pushed);
    stopped.outcome.check(3);
    assert_eq!(stage.writes(), writes);
    assert_eq!(
        stage.status(&pushed, "konverge/apply").as_deref(),
        Some("failure")
    );
    let issues = stage.github.world(|world| world.issues.clone());
    assert!(
        issues.iter().any(|issue| issue.title.contains("storefront/dev")),
        "{issues:?}"
    );
    stage
        .monorepo
        .checkout("main")
        .git(["revert", "--no-edit", "HEAD"]);
    let reverted = stage.monorepo.rev("main");
    stage.push(&pushed, &reverted).outcome.check(0);

    // The scheduled run: nothing, then drift that somebody made by hand.
    let calm = stage.schedule();
    calm.outcome.check(0);
    assert!(
        calm.outputs.contains("has-drift<<") && calm.outputs.contains("\nfalse\n"),
        "{}",
        calm.outputs
    );
    let api: Api<Deployment> = Api::namespaced(stage.cluster.client().await, "storefront-dev");
    let scale = |replicas: u32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let wanted = api
        .get("storefront")
        .await
        .unwrap()
        .spec
        .unwrap()
        .replicas
        .unwrap();
    api.patch("storefront", &PatchParams::default(), &scale(wanted as u32 + 1))
        .await
        .unwrap();
    let drifted = stage.schedule();
    drifted.outcome.check(0);
    assert!(drifted.outputs.contains("\ntrue\n"), "{}", drifted.outputs);
    let open = |stage: &Stage| {
        stage.github.world(|world| {
            let drift =
                |issue: &&crate::support::github::Issue| issue.labels.iter().any(|l| l == "konverge-drift");
            world
                .issues
                .iter()
                .filter(drift)
                .map(|issue| (issue.number, issue.state.clone(), issue.body.clone()))
                .collect::<Vec<_>>()
        })
    };
    let issues = open(&stage);
    assert_eq!(issues.len(), 1, "{issues:?}");
    assert!(
        issues[0].1 == "open" && issues[0].2.contains("replicas"),
        "{issues:?}"
    );

    // Put back by hand: the issue closes.
    api.patch("storefront", &PatchParams::default(), &scale(wanted as u32))
        .await
        .unwrap();
    stage.schedule().outcome.check(0);
    assert_eq!(open(&stage)[0].1, "closed");
}
