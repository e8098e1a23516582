//! [`serve`]: the code of a worker process. Before it reads a request, it enters a sandbox in which it can open no
//! file or socket and start no process.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use serde_json::Value;

use super::{
    protocol::{Answer, Request, RuleLimits},
    sent_document::SentDocument,
};
use crate::{SetRules, SetSource};
use konverge_base::model::{Digest, health::HealthReport, plan_document::StackDocument};
use konverge_sandbox::{SandboxError, SandboxLayers, SandboxMode, SandboxProfile};

/// Reasons why a worker stops.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The limits are not valid [`RuleLimits`].
    #[error("the limits cannot be read: {0}")]
    Limits(serde_json::Error),
    /// The process could not enter its sandbox.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The kernel refused to set the time limit.
    #[error("the limit of time: {0}")]
    Time(#[from] nix::Error),
    /// The pipe to the parent process is closed or broken.
    #[error(transparent)]
    Pipe(#[from] io::Error),
    /// A response cannot be written as JSON.
    #[error("an answer cannot be written: {0}")]
    Answer(serde_json::Error),
    /// A response is longer than 4 GiB.
    #[error("an answer is too long")]
    TooLong,
}

/// Runs a readiness script on an object, without a time limit of its own.
pub type RunScript = fn(&str, &Value) -> Result<Option<HealthReport>, String>;

/// Serves requests until the input ends. `limits` are [`RuleLimits`] as JSON.
///
/// # Errors
/// The limits cannot be parsed or set, or a pipe fails. A sandbox layer that the kernel does not support is no
/// error: no rule language has a function that opens anything.
pub fn serve(
    limits: &str,
    run_script: RunScript,
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> Result<(), ServeError> {
    let limits: RuleLimits = serde_json::from_str(limits).map_err(ServeError::Limits)?;
    layers(limits).apply(&mut io::sink())?;
    let mut rules = ServedRules::default();
    while let Some(frame) = read(input)? {
        limit_time(limits.time)?;
        let answer = match serde_json::from_slice(&frame) {
            Ok(request) => rules.answer(request, run_script),
            Err(_) => Answer::Refused,
        };
        let answer = serde_json::to_vec(&answer).map_err(ServeError::Answer)?;
        let length = u32::try_from(answer.len()).map_err(|_| ServeError::TooLong)?;
        output.write_all(&length.to_be_bytes())?;
        output.write_all(&answer)?;
        output.flush()?;
    }
    Ok(())
}

/// Returns the sandbox layers for a process that only computes and reads no files.
fn layers(limits: RuleLimits) -> SandboxLayers {
    SandboxLayers {
        interpreter: PathBuf::new(),
        arguments: Vec::new(),
        environment: BTreeMap::new(),
        work_dir: PathBuf::from("/"),
        readable: Vec::new(),
        folders: Vec::new(),
        writable: None,
        file_size: 0,
        memory: limits.memory,
        mode: SandboxMode::BestEffort,
        profile: SandboxProfile::Interpreter,
    }
}

/// Sets the processor time after which the kernel kills this process, from now on.
fn limit_time(time: Duration) -> Result<(), ServeError> {
    let used: Duration = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into();
    let (_, most) = getrlimit(Resource::RLIMIT_CPU)?;
    // The limit counts the time since the start of the process, in whole seconds.
    let end = (used + time).as_secs() + 1;
    Ok(setrlimit(Resource::RLIMIT_CPU, end.min(most), most)?)
}

/// Reads the next frame; `None` at the end of the input.
fn read(input: &mut dyn Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    input.read_exact(&mut frame)?;
    Ok(Some(frame))
}

/// The state that a worker keeps between requests.
#[derive(Default)]
struct ServedRules {
    sets: BTreeMap<Digest, (Arc<SetSource>, SetRules)>,
    document: Option<Arc<StackDocument>>,
}

impl ServedRules {
    fn answer(&mut self, request: Request, run_script: RunScript) -> Answer {
        match request {
            Request::Parse { set, source } => match source.parse() {
                Ok(rules) => {
                    self.sets.insert(set, (source, rules));
                    Answer::Parsed
                }
                Err(why) => Answer::Unreadable(why),
            },
            Request::Evaluate { set, document } => {
                if let Some(SentDocument { document, .. }) = document {
                    self.document = Some(document);
                }
                match (self.sets.get(&set), &self.document) {
                    (Some((_, rules)), Some(document)) => Answer::Outcomes(rules.outcomes(document)),
                    _ => Answer::Refused,
                }
            }
            Request::Test { set } => match self.sets.get(&set) {
                Some((source, rules)) => Answer::FailedTests(source.failed_tests(rules)),
                None => Answer::Refused,
            },
            Request::Script { script, object } => Answer::Report(run_script(&script, &object)),
        }
    }
}
