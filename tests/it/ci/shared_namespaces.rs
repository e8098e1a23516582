//! The Namespace of a project is in the Spec of each of its stacks. They share it on one cluster, and the last of them
//! takes it along.

use serde_json::{Value, json};

use crate::support::{
    apps::{QUICKSTART, write_stack},
    ci_stage::{Ran, Stage},
    cluster::Cluster,
    git::Repository,
    objects::Objects,
    process::{Konverge, Outcome},
};

const VERSIONS: (&str, &str) = ("0.2.1", "0.3.0");

struct Project {
    stage: Stage,
    objects: Objects,
    name: &'static str,
    number: u64,
}

impl Project {
    async fn new(name: &'static str) -> Self {
        let monorepo = Repository::init();
        monorepo.write("kcl.mod", "[package]\nname = \"apps\"\n");
        let stage = Stage::with(name, monorepo, "").await;
        let objects = Objects::of(stage.cluster).await;
        Self {
            stage,
            objects,
            name,
            number: 0,
        }
    }

    fn write(&self, repository: &Repository, stack: &str) {
        write_stack(
            repository,
            &format!("apps/{}/{stack}", self.name),
            VERSIONS,
            QUICKSTART,
        );
    }

    /// A previewed pull request.
    fn proposed(&mut self, change: impl FnOnce(&Self, &Repository)) -> Ran {
        self.number += 1;
        let branch = format!("change-{}", self.number);
        self.stage.monorepo.checkout("main").branch(&branch);
        change(self, &self.stage.monorepo);
        self.stage.monorepo.commit(&branch);
        self.stage.pull_request(self.number, &branch, "opened")
    }

    /// The same, and merged; returns what the preview printed.
    fn merged(&mut self, change: impl FnOnce(&Self, &Repository)) -> String {
        let preview = self.proposed(change);
        preview.outcome.check(0);
        let branch = format!("change-{}", self.number);
        self.stage.merge(self.number, &branch).outcome.check(0);
        preview.outcome.stdout
    }

    fn namespace(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})
    }

    /// The live Namespace, unless it is deleted or being deleted.
    async fn live_namespace(&self) -> Option<Value> {
        let live = self.objects.get(&self.namespace()).await;
        live.filter(|live| live["metadata"]["deletionTimestamp"].is_null())
    }

    async fn has(&self, stack: &str) -> bool {
        let name = format!("{}-{stack}-quickstart", self.name);
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": self.name}});
        self.objects.get(&deployment).await.is_some()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stacks_of_a_project_have_it_and_the_last_one_takes_it_along() {
    let mut project = Project::new("duo-apps").await;
    project.merged(|project, repository| {
        project.write(repository, "dev");
        project.write(repository, "prod");
    });
    assert!(project.has("dev").await && project.has("prod").await);
    let uid = project.live_namespace().await.unwrap()["metadata"]["uid"].clone();
    // A third one joins, and nothing is different from what was applied.
    let preview = project.merged(|project, repository| project.write(repository, "qa"));
    assert!(!preview.contains("belongs to stack"), "{preview}");
    assert!(project.has("qa").await);
    project.stage.schedule().outcome.check(0);
    assert_eq!(project.stage.github.world(|world| world.issues.len()), 0);

    // Another project that names the same Namespace is refused.
    let rival = project.proposed(|project, repository| {
        write_stack(repository, "apps/rival/dev", VERSIONS, QUICKSTART);
        let extension = format!(
            "name: rival\nextensions:\n- kind: kubernetesNamespace\n  kubernetesNamespace: {{namespace: {}}}\n",
            project.name
        );
        repository.write("apps/rival/project.yaml", extension);
    });
    rival.outcome.check(1);
    let said = rival.outcome.stdout;
    assert!(said.contains("belongs to stack `duo-apps/"), "{said}");

    // A stack that goes leaves it to the others.
    let preview = project.merged(|_, repository| {
        repository.remove("apps/duo-apps/dev");
    });
    assert!(preview.contains("manages it too"), "{preview}");
    assert!(!project.has("dev").await && project.has("prod").await && project.has("qa").await);
    let live = project.live_namespace().await.expect("others are in it");
    assert_eq!(live["metadata"]["uid"], uid);
    project.stage.schedule().outcome.check(0);
    assert_eq!(project.stage.github.world(|world| world.issues.len()), 0);

    // The rest goes at once: the last one deletes it, as the preview shows.
    let preview = project.merged(|_, repository| {
        repository.remove("apps/duo-apps");
    });
    assert!(
        preview.contains("everything in the namespace is deleted"),
        "{preview}"
    );
    assert!(project.live_namespace().await.is_none());
    assert!(!project.has("prod").await && !project.has("qa").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_there_is_adopted_by_all_of_them() {
    let mut project = Project::new("duo-adopted").await;
    project.objects.create_as(&project.namespace(), "kusion").await;
    let uid = project.live_namespace().await.unwrap()["metadata"]["uid"].clone();
    project.merged(|project, repository| {
        project.write(repository, "dev");
        project.write(repository, "prod");
    });
    assert!(project.has("dev").await && project.has("prod").await);
    let live = project.live_namespace().await.unwrap();
    assert_eq!(live["metadata"]["uid"], uid);
    project.stage.schedule().outcome.check(0);
    assert_eq!(project.stage.github.world(|world| world.issues.len()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_a_stack_wrote_itself_is_its_own() {
    let mut project = Project::new("duo-written").await;
    let own =
        |project: &Project, repository: &Repository| {
            let folder = format!("apps/{}/raw", project.name);
            repository
            .write(&format!("apps/{}/project.yaml", project.name), format!("name: {}\n", project.name))
            .write(&format!("{folder}/stack.yaml"), "name: raw\n")
            .write(&format!("{folder}/kcl.mod"), "[package]\n\n[profile]\nentries = [\"main.k\"]\n")
            .write(
                &format!("{folder}/main.k"),
                format!(
                    "resources = [{{apiVersion = \"v1\", kind = \"Namespace\", metadata.name = \"{}\"}}]\n",
                    project.name
                ),
            );
        };
    // Two stacks of one plan.
    let both = project.proposed(|project, repository| {
        own(project, repository);
        project.write(repository, "dev");
    });
    both.outcome.check(1);
    let said = both.outcome.stdout;
    assert!(said.contains("would create or adopt the same object"), "{said}");
    // One after the other.
    project.merged(own);
    let joins = project.proposed(|project, repository| project.write(repository, "dev"));
    joins.outcome.check(1);
    let said = joins.outcome.stdout;
    assert!(said.contains("belongs to stack `duo-written/raw`"), "{said}");
}

/// The files below a folder whose path holds `part`.
fn files(folder: &std::path::Path, part: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, part))
        } else if path.to_string_lossy().contains(part) {
            found.push(path)
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn by_hand_it_stays_while_another_stack_may_be_in_it() {
    // A Namespace that is deleted ends only with its controller.
    let cluster = Cluster::with_controllers();
    let objects = Objects::of(cluster).await;
    let repository = Repository::init();
    for stack in ["dev", "prod"] {
        write_stack(
            &repository,
            &format!("apps/duo-by-hand/{stack}"),
            VERSIONS,
            QUICKSTART,
        );
    }
    repository
        .write("konverge.yaml", "version: 1\nclusters: {test: {}}\n")
        .commit("Two stacks");
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| -> Outcome {
        Konverge::new(arguments)
            .dir(repository.path())
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("XDG_STATE_HOME", home.path())
            .with_kcl()
            .run()
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "duo-by-hand"}});
    let is_there = async || {
        let live = objects.get(&namespace).await;
        live.is_some_and(|live| live["metadata"]["deletionTimestamp"].is_null())
    };
    run(&["apply", "--all", "--yes", "--no-wait"]).expect(0);
    let checked = run(&["check", "--all"]).expect(0);
    assert!(
        !checked.stdout.contains("only one stack can own"),
        "{}",
        checked.stdout
    );
    let doctor = run(&["state", "doctor"]).expect(0);
    assert!(
        !doctor.stdout.contains("is the same object as"),
        "{}",
        doctor.stdout
    );

    // The state of the other stack cannot be read.
    let states = files(home.path(), "prod/state/");
    let newest = states.iter().max().expect("prod was applied");
    let whole = std::fs::read(newest).unwrap();
    std::fs::write(newest, "{").unwrap();
    run(&["destroy", "duo-by-hand/dev", "--yes"]).expect(1);
    assert!(is_there().await);
    std::fs::write(newest, whole).unwrap();
    // The other stack does not compile.
    let program = "apps/duo-by-hand/prod/main.k";
    let text = repository.read(program);
    repository.write(program, "quickstart = nowhere\n");
    let destroyed = run(&["destroy", "duo-by-hand/dev", "--yes"]).expect(0);
    assert!(
        destroyed
            .stdout
            .contains("stack `duo-by-hand/prod` manages it too"),
        "{}",
        destroyed.stdout
    );
    assert!(is_there().await);
    repository.write(program, text);
    // Both at once: the plan says with which of them it goes.
    run(&["apply", "--all", "--yes", "--no-wait"]).expect(0);
    run(&["destroy", "duo-by-hand/dev", "duo-by-hand/prod", "--yes"]).expect(0);
    assert!(!is_there().await);
}
