//! A repository with a Spec of Terraform resources and a store, for runs of the command itself.

use std::path::{Path, PathBuf};

use konverge::{
    model::StackId,
    runtime::terraform::STATE,
    state::{IDENTITY_VARIABLE, RepositoryId, Sealer, States, Writer},
    store::{self, StoreOptions},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{git::Repository, process::Konverge, terraform};

const ID: &str = "terraform-place";

/// Where runs are made.
pub struct Place {
    repository: Repository,
    /// Both the runs and the test open Terraform's state with it.
    key: Sealer,
    pub store: TempDir,
    /// Where the resources' files go.
    pub outside: TempDir,
    /// Where the runs put temporary files.
    pub temporary: TempDir,
    /// All other files of the runs: caches and states.
    pub home: TempDir,
}

impl Place {
    /// With this executable.
    pub fn new(binary: &Path) -> Self {
        let place = Self {
            repository: Repository::init(),
            key: Sealer::generate(),
            store: TempDir::new().unwrap(),
            outside: TempDir::new().unwrap(),
            temporary: TempDir::new().unwrap(),
            home: TempDir::new().unwrap(),
        };
        let configuration = json!({
            "version": 1,
            "state": {
                "url": format!("file://{}", place.store.path().display()),
                "id": ID,
                // A killed run's lease is waited for.
                "lease": {"term": "15s", "wait": "300s"},
            },
            "terraform": {
                "binary": binary,
                "mirror": terraform::mirror(),
                "providers": [{"source": "hashicorp/local", "version": terraform::LOCAL_PROVIDER}],
            },
        });
        place.repository.write("konverge.yaml", configuration.to_string());
        place.repository.write("kcl.mod", "[package]\nname = \"place\"\n");
        place.repository.commit("Configuration");
        place
    }

    /// The path of a resource's file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.outside.path().join(name)
    }

    /// Says what is wanted from now on.
    pub fn want(&self, resources: &[Value]) {
        self.repository
            .write("spec.json", json!({ "resources": resources }).to_string());
    }

    /// A resource of the provider `hashicorp/local`, whose file has its name.
    pub fn local(&self, kind: &str, name: &str, content: &str, after: &[&str]) -> Value {
        json!({
            "id": format!("hashicorp:local:{kind}:{name}"),
            "type": "Terraform",
            "attributes": {"filename": self.path(name), "content": content},
            "dependsOn": after,
            "extensions": {"provider": super::rig::LOCAL},
        })
    }

    /// A `terraform_data`.
    pub fn data(name: &str, input: Value, after: &[&str]) -> Value {
        json!({
            "id": format!("terraform:builtin:terraform_data:{name}"),
            "type": "Terraform",
            "attributes": {"input": input},
            "dependsOn": after,
        })
    }

    /// A run on the Spec.
    pub fn run(&self, command: &str) -> Konverge {
        self.command(&[command, "--spec", "spec.json", "--stack", "shop/prod"])
    }

    /// A run with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Konverge {
        Konverge::new(arguments)
            .dir(self.repository.path())
            .env(IDENTITY_VARIABLE, self.key.identity().unwrap())
            .env("TMPDIR", self.temporary.path())
            .env("XDG_STATE_HOME", self.home.path().join("state"))
            .env("XDG_CACHE_HOME", self.home.path().join("cache"))
    }

    /// A preview as data.
    pub fn preview(&self) -> Value {
        let plan = self
            .run("preview")
            .arg_all(["--output", "json"])
            .run()
            .expect(0)
            .json();
        plan["stacks"][0].clone()
    }

    /// The resources of the stack as Terraform's part of the state has them, opened; `Null` while there is none.
    pub async fn book(&self) -> Value {
        let url = format!("file://{}", self.store.path().display());
        let store = store::open(&url, &StoreOptions::default()).await.unwrap();
        let writer = Writer {
            run: "observer".to_owned(),
            actor: "test".to_owned(),
        };
        let states = States::open(store, RepositoryId::new(ID), writer).with_sealer(self.key.clone(), false);
        let stack: StackId = "shop/prod".parse().unwrap();
        let Some(found) = states.load(&stack).await.unwrap() else {
            return Value::Null;
        };
        let sealed = found.state.runtime.get(STATE);
        sealed.map_or(Value::Null, |sealed| self.key.open_value(sealed).unwrap())
    }
}

/// Ends what a killed run left: Terraform died with its parent, its provider does not notice. A runner ends it with its
/// job's processes.
pub fn end_left_over(scratch: &Path) {
    let home = format!("HOME={}", scratch.display());
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        if variables.any(|variable| variable.starts_with(home.as_bytes())) {
            let id = nix::unistd::Pid::from_raw(id);
            let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL);
        }
    }
}
