//! The official KCL core as an oracle: a Python process of its own that answers one JSON line a question.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use konverge_base::model::stack::CompileSetup;
use serde_json::{Value, json};

use crate::support;

const SCRIPT: &str = r#"
import sys, json, os
import kcl_lib.api as api
core = api.API()
for line in sys.stdin:
    q = json.loads(line)
    try:
        pkgs = [api.ExternalPkg(pkg_name=n, pkg_path=p) for n, p in q["packages"]]
        if q["do"] == "paths":
            r = core.parse_program(api.ParseProgramArgs(paths=q["files"], external_pkgs=pkgs))
            out = {"paths": list(r.paths), "errors": len(r.errors)}
        elif q["do"] == "package":
            r = core.load_package(api.LoadPackageArgs(
                parse_args=api.ParseProgramArgs(paths=q["files"], external_pkgs=pkgs), resolve_ast=False))
            out = {"paths": list(r.paths), "errors": len(r.parse_errors)}
        else:
            args = [api.Argument(name=n, value=json.dumps(v)) for n, v in q["options"]]
            r = core.exec_program(api.ExecProgramArgs(
                work_dir=q["dir"], k_filename_list=q["files"], external_pkgs=pkgs, args=args,
                disable_none=q["disable_none"], overrides=q["overrides"]))
            out = {"error": r.err_message} if r.err_message else {"spec": r.json_result}
    except Exception as e:
        out = {"error": str(e)}
    sys.stdout.write(json.dumps(out) + "\n")
    sys.stdout.flush()
"#;

/// The core never ends on some texts: it is given up once one question took so much processor time. On a busy machine
/// it has to wait for its turn, and that is not an answer.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(15);

/// It may take so long by the clock.
const DEADLINE: Duration = Duration::from_secs(600);

/// What is said in the place of a core that did not answer.
const SILENCE: &str = "the core did not answer";

/// So often a program is refused before it counts as refused.
const REFUSALS: usize = 12;

/// The core, ended when dropped.
pub struct Oracle {
    child: Child,
    ask: ChildStdin,
    answers: mpsc::Receiver<String>,
    _home: tempfile::TempDir,
}

impl Oracle {
    pub fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut child = Command::new(support::kcl::interpreter())
            .args(["-c", SCRIPT])
            .env("KCL_PKG_PATH", home.path())
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the interpreter of the KCL core starts");
        Self {
            ask: child.stdin.take().unwrap(),
            answers: lines(child.stdout.take().unwrap()),
            child,
            _home: home,
        }
    }

    /// The Spec as the core prints it, or its refusal. Where a program imports a package and also one file of it, the
    /// core (0.13.2) compiles or refuses it as it happens (`name 'side' is not defined`, two times of five): a refusal
    /// counts when it is repeated.
    pub fn compile(&mut self, root: &Path, setup: &CompileSetup) -> Result<Value, String> {
        let mut question = files(root, setup);
        question["do"] = json!("exec");
        question["dir"] = json!(root.join(setup.work_dir.as_str()));
        question["options"] = json!(setup.options);
        question["overrides"] = json!(setup.overrides);
        question["disable_none"] = json!(setup.disable_none);
        let mut refusal = String::new();
        for _ in 0..REFUSALS {
            let answer = self.put(&question);
            if let Some(spec) = answer["spec"].as_str() {
                return Ok(serde_json::from_str(spec).unwrap_or(Value::Null));
            }
            refusal = answer["error"].as_str().unwrap_or_default().to_owned();
            if refusal == SILENCE {
                break;
            }
        }
        Err(refusal)
    }

    /// The `.k` files that the core loads, relative to `root`, by `ParseProgram` or `LoadPackage`; with the number of
    /// errors. `Err` if it gives none.
    pub fn paths(
        &mut self,
        how: &str,
        root: &Path,
        setup: &CompileSetup,
    ) -> Result<(Vec<String>, u64), String> {
        let mut question = files(root, setup);
        question["do"] = json!(how);
        let answer = self.put(&question);
        let Some(paths) = answer["paths"].as_array() else {
            return Err(answer["error"].as_str().unwrap_or_default().to_owned());
        };
        let real = root.canonicalize().unwrap();
        let mut paths: Vec<String> = paths
            .iter()
            .map(|path| Path::new(path.as_str().unwrap()))
            .map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()))
            .map(|path| {
                path.strip_prefix(&real)
                    .unwrap_or(&path)
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        paths.sort();
        paths.dedup();
        Ok((paths, answer["errors"].as_u64().unwrap()))
    }

    /// What the core says. Where it never ends, or ends itself twice, it is ended, and a new one takes the next
    /// question.
    fn put(&mut self, question: &Value) -> Value {
        for _ in 0..2 {
            writeln!(self.ask, "{question}").expect("the core takes a question");
            self.ask.flush().unwrap();
            match self.answer() {
                Ok(line) => return serde_json::from_str(&line).unwrap(),
                Err(why) => {
                    *self = Self::start();
                    if why == RecvTimeoutError::Timeout {
                        break;
                    }
                }
            }
        }
        json!({"error": SILENCE})
    }

    fn answer(&self) -> Result<String, RecvTimeoutError> {
        let (asked, before) = (Instant::now(), self.computed());
        loop {
            match self.answers.recv_timeout(Duration::from_secs(1)) {
                Err(RecvTimeoutError::Timeout)
                    if self.computed() < before + GIVEN_UP_AFTER && asked.elapsed() < DEADLINE => {}
                answer => return answer,
            }
        }
    }

    /// The processor time that it has taken so far, its own and the kernel's for it (`proc_pid_stat(5)`).
    fn computed(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The name in brackets may hold anything; behind it, fields 14 and 15 are the 12th and 13th.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 = fields
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Duration::from_millis(ticks * 10)
    }
}

fn lines(out: ChildStdout) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn files(root: &Path, setup: &CompileSetup) -> Value {
    let entries: Vec<_> = setup
        .entries
        .iter()
        .map(|entry| root.join(entry.path.as_str()))
        .collect();
    let packages: Vec<_> = setup
        .packages
        .iter()
        .map(|(name, folder)| (name, root.join(folder.as_str())))
        .collect();
    json!({"files": entries, "packages": packages})
}
