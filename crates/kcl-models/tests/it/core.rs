//! The official core, asked about generated models.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use konverge_kcl_models::{GenerateOptions, ModelFiles, ModelRoot, generate};
use konverge_testkit::kcl;
use serde_json::{Value, json};

/// The core in a process of its own, beside a folder of models.
pub struct Core {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub files: ModelFiles,
    _folder: tempfile::TempDir,
}

impl Core {
    /// Generates models and starts the core beside them.
    pub fn with(roots: Vec<ModelRoot>, only: &[&str]) -> Self {
        let options = GenerateOptions {
            only: only.iter().map(|kind| (*kind).to_owned()).collect(),
            import_path: "m".to_owned(),
        };
        Self::beside(generate(roots, &options).unwrap())
    }

    fn beside(files: ModelFiles) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in &files {
            let place = folder.path().join("m").join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/core.py");
        let mut process = Command::new(kcl::interpreter())
            .arg(script)
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self {
            process,
            input,
            output,
            files,
            _folder: folder,
        }
    }

    fn ask(&mut self, question: &Value) -> Option<String> {
        writeln!(self.input, "{question}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Why an object is not one of a schema; `None` if it is.
    pub fn refusal(&mut self, package: &str, schema: &str, object: &Value) -> Option<String> {
        self.ask(&json!({"package": format!("m.{package}"), "schema": schema, "object": object}))
    }

    /// Every package loads, and every file is as the core formats it.
    pub fn check_all(&mut self) {
        let files = self.files.clone();
        let folders: std::collections::BTreeSet<&str> = files
            .keys()
            .map(|path| path.rsplit_once('/').unwrap().0)
            .collect();
        for folder in folders {
            let refused = self.ask(&json!({"load": format!("m.{}", folder.replace('/', "."))}));
            assert_eq!(refused, None, "{folder}");
        }
        for (path, text) in &files {
            let formatted = self.ask(&json!({"format": text}));
            assert_eq!(formatted, None, "{path} is not formatted:\n{text}");
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
