//! `konverge watch`, as a program that prints one JSON document for each event.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Program, edit, peak};

pub(super) struct Watched {
    child: Child,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Watched {
    /// Starts it, and waits until it watches.
    pub(super) fn start(program: &Program) -> Self {
        let mut command = program.command(&["watch", "--base", "HEAD", "--output", "json"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut watched = Self {
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            folder: program.folder.clone(),
        };
        assert_eq!(watched.event()["event"], "start");
        watched
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// From a save to its event.
    pub(super) fn save(&mut self, file: &str) -> Duration {
        let started = Instant::now();
        edit(&self.folder.join(file));
        let event = self.event();
        assert_eq!(event["files"][0], file, "{event}");
        started.elapsed()
    }

    /// Ends it; the most resident memory that it had, in MiB.
    pub(super) fn end(mut self) -> f64 {
        let peak = peak(&self.child);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        peak
    }
}
