//! [`serve`]: what a worker does. It confines itself first: it opens no file and no socket, and starts no process.

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

/// Why a worker stops.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The limits are not as [`RuleLimits`] are written.
    #[error("the limits cannot be read: {0}")]
    Limits(serde_json::Error),
    /// It could not confine itself.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The kernel refused a limit of time.
    #[error("the limit of time: {0}")]
    Time(#[from] nix::Error),
    /// The process that started it is gone.
    #[error(transparent)]
    Pipe(#[from] io::Error),
    /// An answer cannot be written as JSON.
    #[error("an answer cannot be written: {0}")]
    Answer(serde_json::Error),
    /// An answer has more than 4 GiB.
    #[error("an answer is too long")]
    TooLong,
}

/// Runs a script of readiness on an object, for as long as it takes.
pub type RunScript = fn(&str, &Value) -> Result<Option<HealthReport>, String>;

/// Answers requests until the input ends. `limits` are [`RuleLimits`] as JSON.
///
/// # Errors
/// The limits cannot be read or set, or the pipes fail. Layers of the sandbox that the kernel lacks are tolerated: no language of
/// rules has a function that opens something.
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

/// A process that computes, and reads nothing.
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

/// Makes the kernel end this process when it has used so much more processor time.
fn limit_time(time: Duration) -> Result<(), ServeError> {
    let used: Duration = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into();
    let (_, most) = getrlimit(Resource::RLIMIT_CPU)?;
    // It counts whole seconds.
    let end = (used + time).as_secs() + 1;
    Ok(setrlimit(Resource::RLIMIT_CPU, end.min(most), most)?)
}

/// The next frame; `None` at the end.
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

/// What the worker keeps between requests.
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
                Err(why) => Answer::Unreadable(why.to_string()),
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
