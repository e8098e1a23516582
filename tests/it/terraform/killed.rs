//! A kill of the whole process (SIGKILL) in the middle of an apply: a second process stands in for the run that dies.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use konverge::{
    error::Failure,
    model::{ResourceId, plan::Action, state::Recorded},
    runtime::{Applied, ApplySink, Runtime},
    state::Sealer,
};
use serde_json::{Value, json};

use super::rig::{self, Rig, StateSeal};
use crate::support::{service, terraform};

const FOLDER: &str = "KONVERGE_TEST_KILLED_FOLDER";
const SECRET: &str = "a-secret-that-must-not-survive-the-kill";
/// Both processes share the key, as two runs of a job do.
const KEY: &str = "a passphrase of both runs";

fn wanted(folder: &Path) -> Vec<konverge::model::spec::Resource> {
    let at = |name: &str| folder.join(name);
    vec![
        rig::resource(
            "hashicorp:local:local_sensitive_file:quick",
            json!({"filename": at("quick"), "content": SECRET}),
        ),
        rig::resource(
            "hashicorp:local:local_file:slow",
            json!({"filename": at("slow"), "content": "slow"}),
        ),
    ]
}

fn stack(folder: &Path) -> Rig {
    Rig::with(terraform::binary(), |options| {
        let sealer = Sealer::new(&[], Some(KEY)).unwrap().unwrap();
        options.key = Some(Arc::new(StateSeal(sealer)));
        options.scratch = Some(folder.join("scratch"));
    })
}

/// Tells the other process what it remembers, a line each.
struct Lines;

impl Lines {
    fn write(line: &Value) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "\nKEPT {line}");
        let _ = out.flush();
    }
}

#[async_trait]
impl ApplySink for Lines {
    fn progress(&self, _: &ResourceId, _: &str) {}

    async fn written(&self, _: &ResourceId, recorded: Recorded) -> Result<(), Failure> {
        Self::write(&json!({"recorded": recorded}));
        Ok(())
    }

    async fn ended(&self, _: &ResourceId, result: Result<Applied, Failure>) -> Result<(), Failure> {
        if let Ok(applied) = result {
            Self::write(&json!({"recorded": applied.recorded}));
        }
        Ok(())
    }

    async fn runtime_data(&self, key: &str, value: Value) -> Result<(), Failure> {
        Self::write(&json!({"key": key, "value": value}));
        Ok(())
    }

    fn cancelled(&self) -> bool {
        false
    }

    async fn fence(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// The run that dies: does nothing unless it is started by the test below.
#[tokio::test(flavor = "multi_thread")]
async fn the_run_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let rig = stack(&folder);
    let planned = rig.plan(&wanted(&folder)).await.remove(0);
    rig.runtime.apply(&rig.scope, planned, &Lines).await.unwrap();
}

/// The processes whose home is in this folder.
fn left_over(folder: &Path) -> Vec<nix::unistd::Pid> {
    let home = format!("HOME={}", folder.display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| {
            let id = process.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(process.path().join("environ")).ok()?;
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable.starts_with(home.as_bytes()))
                .then(|| nix::unistd::Pid::from_raw(id))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_leaves_a_state_from_which_the_next_converges() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("scratch")).unwrap();
    nix::unistd::mkfifo(
        &folder.path().join("slow"),
        nix::sys::stat::Mode::from_bits_truncate(0o600),
    )
    .unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "terraform::killed::the_run_that_is_killed",
            "--nocapture",
        ])
        .env(FOLDER, folder.path());
    let mut child = service::bound_to_parent(&command)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut kept: Vec<Value> = Vec::new();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let Some(json) = line.strip_prefix("KEPT ") else {
            continue;
        };
        kept.push(serde_json::from_str(json).unwrap());
        // The quick resource is done, the slow one hangs in the provider: now the machine is taken away.
        if kept.iter().any(|k| {
            k["recorded"]["id"]
                .as_str()
                .is_some_and(|id| id.ends_with(":quick"))
        }) {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();

    // Terraform died with its parent. Its provider does not notice, and is ended here as a runner ends its job's processes.
    for process in left_over(&folder.path().join("scratch")) {
        let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
    }

    let text = serde_json::to_string(&kept).unwrap();
    assert!(!text.contains(SECRET));
    let mut left = Vec::new();
    rig::walk(&folder.path().join("scratch"), &mut left);
    for file in left {
        let bytes = std::fs::read(&file).unwrap();
        assert!(
            !String::from_utf8_lossy(&bytes).contains(SECRET),
            "{} was left in clear",
            file.display()
        );
    }

    let mut rig = stack(folder.path());
    rig.scope.data = kept
        .iter()
        .filter_map(|k| Some((k["key"].as_str()?.to_owned(), k["value"].clone())))
        .collect::<BTreeMap<_, _>>();
    // As the journal's intents leave it: the slow one may exist.
    for recorded in kept.iter().filter_map(|k| k.get("recorded")) {
        let recorded: Recorded = serde_json::from_value(recorded.clone()).unwrap();
        rig.recorded.insert(recorded.id.clone(), recorded);
    }
    let wanted = wanted(folder.path());
    std::fs::remove_file(folder.path().join("slow")).unwrap();
    tokio::time::timeout(Duration::from_secs(120), async {
        let plan = rig.plan(&wanted).await.remove(0);
        assert_eq!(
            plan[0].public.action,
            Action::Unchanged,
            "what was reported complete is remembered"
        );
        assert_eq!(plan[1].public.action, Action::Create);
        assert!(
            plan[1].public.notes[0].contains("terraform import local_file.slow ID"),
            "what was in flight is named: {:?}",
            plan[1].public.notes
        );
        rig.apply(&wanted).await;
        assert!(
            rig.actions(&wanted)
                .await
                .values()
                .all(|a| *a == Action::Unchanged)
        );
    })
    .await
    .unwrap();
}
