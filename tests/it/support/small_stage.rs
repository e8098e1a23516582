//! A small stage: a monorepo of ConfigMaps alone, whose store is a folder and whose cluster is the API server alone.
//! For what is about people and GitHub, not about clusters and buckets.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_state::{
    DocumentWriter, RepositoryId, StateStore,
    store::{StoreOptions, open},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    ci_stage::{Ran, Stage},
    cluster::Cluster,
    git::Repository,
    github::{FakeGithub, World},
    process::{Konverge, Outcome},
    tiny_monorepo,
};

const REPOSITORY: &str = "small-stage";

impl Stage {
    /// A monorepo without a project. `more` is added to its konverge.yaml. Tests keep apart by their projects' names.
    pub async fn small(more: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let monorepo = Repository::init();
        monorepo.write("kcl.mod", "[package]\nname = \"small\"\nversion = \"0.1.0\"\n");
        let github = FakeGithub::start(World::of(&monorepo)).await;
        let stage = Self {
            monorepo,
            github,
            cluster: Cluster::shared(),
            bucket: String::new(),
            scratch,
            runs: 0,
            env: Vec::new(),
            old_kernel: false,
        };
        stage.configure(more);
        stage.monorepo.commit("No project yet");
        stage
    }

    /// Writes konverge.yaml into the working tree.
    pub fn configure(&self, more: &str) {
        let store = self.scratch.path().join("store");
        std::fs::create_dir_all(&store).unwrap();
        let config = format!(
            "version: 1\nstate: {{id: {REPOSITORY}, url: 'file://{}'}}\nclusters: {{test: {{}}}}\nkcl: {{version: 0.13.2}}\n{more}",
            store.display()
        );
        self.monorepo.write("konverge.yaml", config);
    }

    /// Writes a stack `project/name` of these ConfigMaps, each with one value, into the working tree.
    pub fn stack(&self, id: &str, maps: &[(&str, &str)]) {
        let resource = |(map, value): &(&str, &str)| {
            format!(
                "    {{id = \"v1:ConfigMap:default:{map}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{map}\", namespace = \"default\"}}, data = {{value = \"{value}\"}}}}}}\n"
            )
        };
        let resources: String = maps.iter().map(resource).collect();
        tiny_monorepo::write_program(&self.monorepo, id, &format!("resources = [\n{resources}]\n"));
    }

    /// Proposes a change of the working tree, previews it and answers its head.
    pub fn reviewed(&mut self, number: u64, branch: &str, change: impl FnOnce(&Self)) -> (String, Ran) {
        self.monorepo.checkout("main").branch(branch);
        change(self);
        let head = self.monorepo.commit(branch);
        let ran = self.pull_request(number, branch, "opened");
        ran.outcome.check(0);
        (head, ran)
    }

    /// The push of `main` once more, as when the run is started again.
    pub fn again(&mut self) -> Ran {
        let tip = self.monorepo.rev("main");
        self.push(&tip, &tip)
    }

    /// A change that goes to `main` without a pull request.
    pub fn straight_to_main(&mut self, change: impl FnOnce(&Self)) -> Ran {
        let before = self.monorepo.checkout("main").rev("main");
        change(self);
        let after = self.monorepo.commit("Straight to main");
        self.push(&before, &after)
    }

    /// The workflow started by hand with digests.
    pub fn approve(&mut self, digests: &str) -> Ran {
        let tip = self.monorepo.rev("main");
        let payload = json!({"ref": "refs/heads/main", "inputs": {"approve": digests, "reason": "the vendor\n fixes it by May"},
            "repository": {"full_name": "acme/konfig", "default_branch": "main"}});
        self.ci("workflow_dispatch", &payload, &tip, "refs/heads/main")
    }

    /// Somebody approves a head of a pull request.
    pub fn approved_by(&self, number: u64, login: &str, head: &str) {
        self.approved_saying(number, login, head, "agreed with <b>security</b>");
    }

    /// The same with these words.
    pub fn approved_saying(&self, number: u64, login: &str, head: &str, words: &str) {
        self.github.world(|world| {
            let now = world.tick();
            let review = json!({"user": {"login": login}, "state": "APPROVED", "commit_id": head, "submitted_at": now,
                "node_id": format!("PRR_{number}_{login}"), "editor": null, "body": words});
            // Unless a test says otherwise it is somebody who may push.
            world.collaborators.entry(login.to_owned()).or_insert("write");
            world.reviews.push((number, review));
        });
    }

    /// The value of a ConfigMap.
    pub async fn value(&self, map: &str) -> Option<String> {
        let found = self.maps().await.get_opt(map).await.unwrap();
        found.map(|map| map.data.unwrap()["value"].clone())
    }

    /// The data of a ConfigMap.
    pub async fn data(&self, map: &str) -> Option<BTreeMap<String, String>> {
        self.maps().await.get_opt(map).await.unwrap()?.data
    }

    /// Somebody changes a ConfigMap by hand; `None` deletes it.
    pub async fn by_hand(&self, map: &str, value: Option<&str>) {
        let api = self.maps().await;
        match value {
            Some(value) => {
                let patch = Patch::Merge(json!({"data": {"value": value}}));
                api.patch(map, &PatchParams::default(), &patch).await.unwrap();
            }
            None => {
                api.delete(map, &DeleteParams::default()).await.unwrap();
            }
        }
    }

    async fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.cluster.client().await, "default")
    }

    /// `konverge state …` in the repository.
    pub fn state(&self, arguments: &[&str]) -> Outcome {
        self.monorepo.checkout("main");
        Konverge::new(["state"].iter().chain(arguments))
            .dir(self.monorepo.path())
            .run()
            .expect(0)
    }

    /// The receipt of the newest serial.
    pub fn receipt(&self, stack: &str) -> Value {
        self.state(&["show", stack, "--output", "json"]).json()["receipt"].clone()
    }

    /// The store, opened beside the runs.
    pub async fn states(&self) -> StateStore {
        let store = self.scratch.path().join("store");
        let store = open(store.to_str().unwrap(), &StoreOptions::default())
            .await
            .unwrap();
        let writer = DocumentWriter {
            run: "the test".to_owned(),
            actor: "nobody".to_owned(),
        };
        StateStore::open(store, RepositoryId::new(REPOSITORY), writer)
    }
}

impl Ran {
    /// The digest that a refusal asks to approve.
    pub fn digest(&self) -> String {
        let said = &self.outcome.stdout;
        let digits = |text: &str| -> String { text.chars().take_while(char::is_ascii_hexdigit).collect() };
        // A gate also says who must approve, before it names the digest.
        let mut digests = said.split("approve: ").skip(1).map(digits);
        digests
            .find(|digest| digest.len() == 64)
            .unwrap_or_else(|| panic!("{said}"))
    }
}
