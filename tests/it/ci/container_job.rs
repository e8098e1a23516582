//! Jobs with `container:`, and the docker action inside of them: the folders, variables and users that GitHub's runner
//! gives them (its `ContainerOperationProvider` and `ContainerActionHandler`), and what such an image may lack.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
};

use crate::support::{
    ci_stage::{Ran, Stage},
    container::Container,
    git::Repository,
    kcl,
};

/// Whom the workspace belongs to: the runner's user on GitHub's own machines.
const RUNNER: u32 = 1001;

/// One pull request, and the folder of a runner that works on it.
struct Job {
    stage: Stage,
    /// What actions/checkout left.
    checkout: Repository,
    /// The runner's `_work` otherwise.
    work: PathBuf,
    head: String,
    trial: String,
    /// Whether the image has git.
    git: bool,
    user: u32,
    /// The folder of the checkout, and the one that the runner calls its workspace.
    places: (&'static str, &'static str),
}

/// Where the checkout lies in a job's container.
const WORKSPACE: &str = "/__w/konfig/konfig";

impl Job {
    /// A pull request with the ConfigMap `map`, checked out as `depth` says (`--depth=1`…).
    async fn of(map: &str, depth: &[&str]) -> Self {
        let stage = Stage::small("").await;
        let head = stage.propose("topic", |_| stage.stack("app/dev", &[(map, "1")]));
        let (payload, trial) = stage.opened(7, "topic", "opened", "acme/konfig");
        stage
            .monorepo
            .git(["config", "uploadpack.allowAnySHA1InWant", "true"]);
        let checkout = Repository::init();
        let origin = format!("file://{}", stage.monorepo.path().display());
        checkout.git(["remote", "add", "origin", &origin]);
        let fetch = ["fetch", "--quiet", "--no-tags", "origin", &trial];
        checkout.git(fetch.iter().chain(depth).copied());
        checkout.git(["checkout", "--quiet", "--detach", &trial]);
        let work = stage.scratch.path().join("work");
        for folder in [
            "_temp/_runner_file_commands",
            "_temp/_github_home",
            "_temp/_github_workflow",
        ] {
            fs::create_dir_all(work.join(folder)).unwrap();
        }
        fs::write(
            work.join("_temp/_github_workflow/event.json"),
            payload.to_string(),
        )
        .unwrap();
        for file in ["step_summary_1", "set_output_1"] {
            fs::write(work.join("_temp/_runner_file_commands").join(file), "").unwrap();
        }
        fs::write(work.join("_temp/step.sh"), "konverge ci\n").unwrap();
        give(&work, RUNNER);
        give(checkout.path(), RUNNER);
        Self {
            stage,
            checkout,
            work,
            head,
            trial,
            git: false,
            user: 0,
            places: (WORKSPACE, WORKSPACE),
        }
    }

    /// The image, and what is in it wherever it runs.
    fn container(&self) -> Container {
        let root = self.stage.scratch.path().join("root");
        fs::create_dir_all(&root).unwrap();
        let mut container = Container::new(&root);
        let cluster = self.stage.cluster.kubeconfig();
        let cluster = cluster.parent().unwrap();
        let store = self.stage.scratch.path().join("store");
        give(&store, self.user);
        container.read_only(cluster, cluster).shared(&store, &store);
        // Where `origin` is; a real one is reached over the network.
        container.read_only(self.stage.monorepo.path(), self.stage.monorepo.path());
        if self.git {
            container.read_only("/usr/bin/git", "/usr/bin/git");
        }
        container
    }

    /// A `run:` step of a job with `container:`.
    fn step(&self) -> Ran {
        let mut container = self.container();
        container
            .shared(&self.work, "/__w")
            .shared(self.checkout.path(), self.places.0)
            .shared(self.work.join("_temp/_github_home"), "/github/home")
            .shared(self.work.join("_temp/_github_workflow"), "/github/workflow");
        self.ended(
            &container,
            self.places.0,
            &["/bin/sh", "-e", "/__w/_temp/step.sh"],
            &[
                ("GITHUB_WORKSPACE", self.places.1),
                (
                    "GITHUB_STEP_SUMMARY",
                    "/__w/_temp/_runner_file_commands/step_summary_1",
                ),
                ("GITHUB_OUTPUT", "/__w/_temp/_runner_file_commands/set_output_1"),
                ("RUNNER_TEMP", "/__w/_temp"),
            ],
        )
    }

    /// A step that uses the docker action: `konverge` is the container's first process.
    fn action(&self) -> Ran {
        let mut container = self.container();
        container
            .shared(self.checkout.path(), "/github/workspace")
            .shared(self.work.join("_temp/_github_home"), "/github/home")
            .shared(self.work.join("_temp/_github_workflow"), "/github/workflow")
            .shared(
                self.work.join("_temp/_runner_file_commands"),
                "/github/file_commands",
            );
        self.ended(
            &container,
            "/github/workspace",
            &["/usr/local/bin/konverge", "ci"],
            &[
                ("GITHUB_WORKSPACE", "/github/workspace"),
                ("GITHUB_STEP_SUMMARY", "/github/file_commands/step_summary_1"),
                ("GITHUB_OUTPUT", "/github/file_commands/set_output_1"),
                // Older runners name the folder of the host, and mount it nowhere (actions/runner#1984).
                ("RUNNER_TEMP", "/home/runner/work/_temp"),
                ("INPUT_COMMAND", "ci"),
                ("INPUT_WORKING-DIRECTORY", "."),
            ],
        )
    }

    fn ended(&self, container: &Container, folder: &str, program: &[&str], env: &[(&str, &str)]) -> Ran {
        let run = container
            .run(self.user, folder, program)
            .env("CI", "true")
            .env("HOME", "/github/home")
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_EVENT_NAME", "pull_request")
            .env("GITHUB_EVENT_PATH", "/github/workflow/event.json")
            .env("GITHUB_REPOSITORY", "acme/konfig")
            .env("GITHUB_SHA", &self.trial)
            .env("GITHUB_REF", "refs/pull/7/merge")
            .env("GITHUB_RUN_ID", "5001")
            .env("GITHUB_RUN_ATTEMPT", "1")
            .env("GITHUB_ACTOR", "dev")
            .env("GITHUB_SERVER_URL", "https://github.com")
            .env("GITHUB_API_URL", self.stage.github.api_url())
            .env("GITHUB_TOKEN", "ghs_token")
            .env("KUBECONFIG", self.stage.cluster.kubeconfig());
        let outcome = env
            .iter()
            .fold(run, |run, (key, value)| run.env(key, value))
            .run();
        let read = |file: &str| {
            fs::read_to_string(self.work.join("_temp/_runner_file_commands").join(file)).unwrap()
        };
        Ran {
            outcome,
            summary: read("step_summary_1"),
            outputs: read("set_output_1"),
            folder: self.work.join("_temp"),
        }
    }

    /// The comment, the status and the record that a preview leaves.
    fn is_told(&self, map: &str) {
        let comments = self.stage.comments();
        assert_eq!(comments.len(), 1, "{comments:?}");
        assert!(comments[0].1.contains(map), "{}", comments[0].1);
        let status = self.stage.status(&self.head, "konverge/preview");
        assert_eq!(status.as_deref(), Some("success"));
    }
}

/// Gives all that is below a path away.
fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if !path.is_symlink() {
                give(&path, user);
            }
        }
    }
}

/// Root in a workspace of the runner's, `sh` and no git: a preview to its comment.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_in_a_container_needs_no_more_than_the_binary_and_the_core() {
    let job = Job::of("boxed", &[]).await;
    let before = files(job.checkout.path());
    let ran = job.step();
    ran.outcome.check(0);
    assert!(!ran.outcome.stderr.contains("warning"), "{}", ran.outcome.stderr);
    job.is_told("boxed");
    assert!(ran.summary.contains("boxed"), "{}", ran.summary);
    assert!(ran.output("changed-stacks").contains("app/dev"));
    // A later step in the same container finds the result by its path.
    let result = ran.output("result-path");
    let result = job.work.join(result.strip_prefix("/__w/").unwrap());
    assert!(fs::read_to_string(result).unwrap().contains("boxed"));
    assert_eq!(
        files(job.checkout.path()),
        before,
        "nothing is left in the workspace"
    );
}

/// What belongs to somebody else is read where the runner put it, also by `path:` of actions/checkout, and nowhere
/// else.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_checkout_is_trusted_in_the_workspace_alone() {
    let mut job = Job::of("placed", &[]).await;
    job.places = ("/__w/konfig/konfig/monorepo", WORKSPACE);
    job.step().outcome.check(0);
    job.is_told("placed");
    job.places = ("/__w/konfig/elsewhere", WORKSPACE);
    let ran = job.step();
    ran.outcome.check(1);
    let said = &ran.outcome.stderr;
    assert!(said.contains("safe.directory /__w/konfig/elsewhere"), "{said}");
}

/// The docker action in any job: the first process of its container, without the folders of the step before it.
#[tokio::test(flavor = "multi_thread")]
async fn the_action_in_a_container_of_its_own_fetches_what_a_shallow_checkout_lacks() {
    let mut job = Job::of("docked", &["--depth=1"]).await;
    job.git = true;
    let ran = job.action();
    ran.outcome.check(0);
    assert!(!ran.outcome.stderr.contains("warning"), "{}", ran.outcome.stderr);
    job.is_told("docked");
    assert!(ran.summary.contains("docked"), "{}", ran.summary);
    // Only the workspace is where the steps after it find something, and the runner must be able to remove it.
    let result = job.checkout.path().join(ran.output("result-path"));
    assert!(fs::read_to_string(&result).unwrap().contains("docked"));
    assert_eq!(fs::metadata(&result).unwrap().uid(), RUNNER);
}

/// `options: --user 1000`: neither the workspace nor the runner's files may be written.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_write_nothing_of_the_runners_still_comments() {
    let mut job = Job::of("modest", &[]).await;
    job.user = 1000;
    let ran = job.step();
    ran.outcome.check(0);
    job.is_told("modest");
    let said = &ran.outcome.stderr;
    for part in ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(said.contains("leave out `options: --user`"), "{said}");
    // Nor is a home needed, or a variable that names one.
    let step = "unset HOME\nkonverge ci\n";
    fs::write(job.work.join("_temp/step.sh"), step).unwrap();
    job.step().outcome.check(0);
    job.is_told("modest");
}

/// What an image lacks is named, with what to do.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_image_lacks_is_said() {
    // Without git nothing can be fetched.
    let job = Job::of("lacking", &["--depth=1"]).await;
    let ran = job.step();
    ran.outcome.check(1);
    let said = &ran.outcome.stderr;
    assert!(said.contains("`git` was not found"), "{said}");
    assert!(said.contains("fetch-depth: 0"), "{said}");

    // Without certificates nobody is spoken to.
    let step = "SSL_CERT_FILE=/nowhere SSL_CERT_DIR=/nowhere konverge ci\n";
    fs::write(job.work.join("_temp/step.sh"), step).unwrap();
    let ran = job.step();
    ran.outcome.check(1);
    let said = &ran.outcome.stderr;
    assert!(said.contains("install the package `ca-certificates`"), "{said}");
    fs::write(job.work.join("_temp/step.sh"), "konverge ci\n").unwrap();

    // Without git actions/checkout downloads an archive.
    fs::remove_dir_all(job.checkout.path().join(".git")).unwrap();
    let ran = job.step();
    ran.outcome.check(1);
    let said = &ran.outcome.stderr;
    assert!(said.contains("install git in the job's image"), "{said}");

    // An engine that denies Landlock.
    let job = Job::of("walled", &[]).await;
    let script = format!(
        "{} /__w/_temp/without_landlock.py /usr/local/bin/konverge ci\n",
        kcl::interpreter().display()
    );
    fs::write(job.work.join("_temp/step.sh"), script).unwrap();
    let without = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/crates/testkit/src/without_landlock.py"
    );
    fs::copy(without, job.work.join("_temp/without_landlock.py")).unwrap();
    let ran = job.step();
    ran.outcome.check(1);
    let said = &ran.outcome.stdout;
    assert!(
        said.contains("denied by the container's seccomp profile"),
        "{said}"
    );
}

/// Every file of a folder, without what git keeps for itself.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with(".git") {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
