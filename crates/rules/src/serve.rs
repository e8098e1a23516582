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

use super::{
    protocol::{Answer, Request, RuleLimits},
    sent_document::SentDocument,
};
use konverge_base::model::{Digest, plan_document::StackDocument};
use konverge_policy::sets::{SetRules, SetSource};
use konverge_sandbox::{SandboxLayers, SandboxMode, SandboxProfile};

/// Answers requests until the input ends.
///
/// # Errors
/// A limit cannot be set, or the pipes fail. Layers of the sandbox that the kernel lacks are tolerated: no language of
/// rules has a function that opens something.
pub fn serve(limits: RuleLimits, input: &mut dyn Read, output: &mut dyn Write) -> Result<(), String> {
    layers(limits)
        .apply(&mut io::sink())
        .map_err(|error| error.to_string())?;
    let mut rules = ServedRules::default();
    let failed = |error: io::Error| error.to_string();
    while let Some(frame) = read(input).map_err(failed)? {
        limit_time(limits.time)?;
        let answer = match serde_json::from_slice(&frame) {
            Ok(request) => rules.answer(request),
            Err(_) => Answer::Refused,
        };
        let answer = serde_json::to_vec(&answer).map_err(|error| error.to_string())?;
        let length = u32::try_from(answer.len()).map_err(|error| error.to_string())?;
        output.write_all(&length.to_be_bytes()).map_err(failed)?;
        output.write_all(&answer).map_err(failed)?;
        output.flush().map_err(failed)?;
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
fn limit_time(time: Duration) -> Result<(), String> {
    let failed = |error: nix::Error| format!("the limit of time: {error}");
    let used: Duration = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map_err(failed)?
        .into();
    let (_, most) = getrlimit(Resource::RLIMIT_CPU).map_err(failed)?;
    // It counts whole seconds.
    let end = (used + time).as_secs() + 1;
    setrlimit(Resource::RLIMIT_CPU, end.min(most), most).map_err(failed)
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
    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Parse { set, source } => match source.parse() {
                Ok(rules) => {
                    self.sets.insert(set, (source, rules));
                    Answer::Parsed
                }
                Err(why) => Answer::Unreadable(why),
            },
            Request::Evaluate { set, document } => {
                if let Some(SentDocument(document)) = document {
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
        }
    }
}
