//! A repository with a Spec of Terraform resources and a store, for runs of the command itself.

use std::path::{Path, PathBuf};

use konverge_base::model::StackId;
use konverge_state::{
    DocumentWriter, IDENTITY_VARIABLE, RepositoryId, SealScope, Sealer, StateStore,
    store::{self, StoreOptions},
};
use konverge_terraform::STATE;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{closable_proxy::Gate, git::Repository, process::Konverge, s3::S3, terraform};

const ID: &str = "terraform-place";

/// Runs a command on a terminal of its own, answers its question, and prints what stood on the terminal.
const TERMINAL: &str = r#"
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said, answered = b"", False
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:
        break
    if not part:
        break
    said += part
    if not answered and b"Type `yes`: " in said:
        answered = True
        os.write(terminal, b"yes\n")
sys.stdout.buffer.write(said)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

/// Where runs are made.
pub struct Place {
    pub repository: Repository,
    /// Both the runs and the test open Terraform's state with it.
    key: Sealer,
    pub store: TempDir,
    /// Where the resources' files go.
    pub outside: TempDir,
    /// Where the runs put temporary files.
    pub temporary: TempDir,
    /// All other files of the runs: caches and states.
    pub home: TempDir,
    url: String,
    env: Vec<(&'static str, String)>,
}

impl Place {
    /// With this executable.
    pub fn new(binary: &Path) -> Self {
        Self::with(binary, json!({}))
    }

    /// With more in the configuration.
    pub fn with(binary: &Path, more: Value) -> Self {
        let store = TempDir::new().unwrap();
        let url = format!("file://{}", store.path().display());
        // A killed run's lease is waited for.
        Self::at(binary, (url, Vec::new(), store), "15s", more)
    }

    /// With the state in a bucket behind a gate.
    pub fn behind(binary: &Path, server: &S3, gate: &Gate, term: &str) -> Self {
        let bucket = server.bucket("terraform");
        let url = format!("s3://{bucket}/p?endpoint={}&allow_http=true", gate.url());
        let env = vec![
            ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY.to_owned()),
            ("AWS_REGION", S3::REGION.to_owned()),
        ];
        Self::at(binary, (url, env, TempDir::new().unwrap()), term, json!({}))
    }

    fn at(
        binary: &Path,
        (url, env, store): (String, Vec<(&'static str, String)>, TempDir),
        term: &str,
        more: Value,
    ) -> Self {
        let place = Self {
            repository: Repository::init(),
            key: Sealer::generate(),
            store,
            url,
            env,
            outside: TempDir::new().unwrap(),
            temporary: TempDir::new().unwrap(),
            home: TempDir::new().unwrap(),
        };
        let mut configuration = json!({
            "version": 1,
            "state": {
                "url": place.url,
                "id": ID,
                "lease": {"term": term, "wait": "300s"},
            },
            "terraform": {
                "binary": binary,
                "mirror": terraform::mirror(),
                "providers": [
                    {"source": "hashicorp/local", "version": terraform::LOCAL_PROVIDER},
                    {"source": "konverge/trace", "version": terraform::TRACE_PROVIDER},
                ],
            },
        });
        let settings = configuration.as_object_mut().unwrap();
        settings.extend(more.as_object().unwrap().clone());
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
            "extensions": {"provider": super::runtime_fixture::LOCAL},
        })
    }

    /// A `trace_object` with more attributes.
    pub fn trace(&self, name: &str, more: Value, after: &[&str]) -> Value {
        let mut attributes = json!({"folder": self.outside.path(), "name": name});
        let more = more.as_object().unwrap().clone();
        attributes.as_object_mut().unwrap().extend(more);
        json!({
            "id": Self::trace_id(name),
            "type": "Terraform",
            "attributes": attributes,
            "dependsOn": after.iter().map(|name| Self::trace_id(name)).collect::<Vec<_>>(),
            "extensions": {"provider": terraform::trace()},
        })
    }

    /// The id of a `trace_object`.
    pub fn trace_id(name: &str) -> String {
        format!("konverge:trace:trace_object:{name}")
    }

    /// What the provider was asked to do, in order: `create one`.
    pub fn calls(&self) -> Vec<String> {
        super::runtime_fixture::calls(self.outside.path())
    }

    /// Takes the monorepo away: what is left is a repository with a configuration.
    pub fn without_module(self) -> Self {
        std::fs::remove_file(self.repository.path().join("kcl.mod")).unwrap();
        self
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
        self.here(Konverge::new(arguments))
    }

    /// A run with these arguments at a terminal, where a person types `yes` when they are asked.
    pub fn at_terminal(&self, arguments: &[&str]) -> Konverge {
        let command = ["-c", TERMINAL, env!("CARGO_BIN_EXE_konverge")];
        self.here(Konverge::of(
            Path::new("python3"),
            [&command[..], arguments].concat(),
        ))
    }

    fn here(&self, run: Konverge) -> Konverge {
        let env = self.env.iter();
        env.fold(run, |run, (name, value)| run.env(name, value))
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
        let options = StoreOptions {
            environment: self
                .env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            ..StoreOptions::default()
        };
        let store = store::open(&self.url, &options).await.unwrap();
        let writer = DocumentWriter {
            run: "observer".to_owned(),
            actor: "test".to_owned(),
        };
        let states = StateStore::open(store, RepositoryId::new(ID), writer)
            .with_sealer(Some(self.key.clone()), SealScope::Values);
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
