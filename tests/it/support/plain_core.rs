//! The official KCL core alone, asked for the stacks of a repository.

use konverge_base::model::spec::Spec;
use konverge_engine::spec;
use serde_json::Value;

use super::{git::Repository, kcl::interpreter};

pub fn spec_of(json: &Value) -> Spec {
    spec::read(&[serde_json::json!({"resources": json["resources"]})]).unwrap()
}

pub fn core_alone(repository: &Repository, folder: &str) -> Spec {
    cores_alone(repository, &[folder.to_owned()]).remove(0).spec
}

/// What the core alone makes of a stack.
pub struct CoreAlone {
    pub folder: String,
    pub spec: Spec,
    /// The files that it loads, relative to the repository.
    pub files: Vec<String>,
    /// The `kcl.mod` files that say where they are.
    pub modules: Vec<String>,
}

/// Asks the core for stacks, one after the other in one process.
pub fn cores_alone(repository: &Repository, folders: &[String]) -> Vec<CoreAlone> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/core_alone.py");
    let output = std::process::Command::new(interpreter())
        .args([script, repository.path().to_str().unwrap()])
        .args(folders)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let words = |value: &Value| -> Vec<String> {
        let list = value.as_array().unwrap().iter();
        list.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines = stdout.lines().map(|line| {
        let stack: Value = serde_json::from_str(line).unwrap();
        let documents: Vec<Value> = serde_json::Deserializer::from_str(stack["documents"].as_str().unwrap())
            .into_iter()
            .map(Result::unwrap)
            .collect();
        CoreAlone {
            folder: stack["folder"].as_str().unwrap().to_owned(),
            spec: spec::read(&documents).unwrap(),
            files: words(&stack["files"]),
            modules: words(&stack["modules"]),
        }
    });
    lines.collect()
}
