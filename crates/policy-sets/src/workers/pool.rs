//! [`RuleWorkers`]: a pool of worker processes, at most as many as processors. A worker that dies is replaced, and
//! the request that it had gets no outcomes.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    protocol::{Answer, Request, RuleLimits},
    sent_document::SentDocument,
    worker::{RuleWorker, WorkerEnd},
};
use crate::{FailedTest, NoOutcomes, PolicySet, RuleOutcome, SetSource};
use konverge_base::model::{
    Digest, digest::DigestBuilder, health::HealthReport, plan_document::StackDocument,
};

/// The number of stacks on which the evaluation of a set may be stopped. After that the set is not evaluated on
/// further stacks.
const MOST_ENDED: u32 = 3;
/// The number of parsed sets after which a worker is replaced, which limits its memory.
const MOST_SETS: usize = 64;

type Outcomes = Result<Vec<RuleOutcome>, NoOutcomes>;

/// A pool of workers for rules. Cheap to clone; dropping the last clone ends the workers.
#[derive(Clone)]
pub struct RuleWorkers {
    inner: Arc<Inner>,
}

struct Inner {
    executable: Option<PathBuf>,
    limits: RuleLimits,
    permits: Semaphore,
    idle: Mutex<Vec<RuleWorker>>,
    failed: Mutex<FailedSets>,
}

/// Sets that failed before.
#[derive(Default)]
struct FailedSets {
    unreadable: BTreeMap<Digest, String>,
    ended: BTreeMap<Digest, u32>,
}

impl std::fmt::Debug for RuleWorkers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RuleWorkers")
    }
}

impl RuleWorkers {
    /// Creates a pool of as many workers as processors, which start on demand. `executable` is the `konverge`
    /// binary; `None` means the running one.
    pub fn new(executable: Option<PathBuf>, limits: RuleLimits) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            inner: Arc::new(Inner {
                executable,
                limits,
                permits: Semaphore::new(processors),
                idle: Mutex::default(),
                failed: Mutex::default(),
            }),
        }
    }

    /// Evaluates each set on a document. A set that kills its worker has no outcomes; the next sets get a new
    /// worker.
    pub async fn outcomes(&self, sets: &[&PolicySet], document: &Arc<StackDocument>) -> Vec<Outcomes> {
        let document = SentDocument::new(document, sets);
        let mut lent = self.lend().await;
        let mut all = Vec::new();
        for set in sets {
            all.push(lent.outcomes(set, &document).await);
        }
        lent.give_back();
        all
    }

    /// Runs the tests of a set, and returns those that fail. A set that cannot be parsed fails as a whole, as one
    /// test of `path`.
    pub async fn failed_tests(&self, set: &PolicySet, path: &str) -> Vec<FailedTest> {
        let mut lent = self.lend().await;
        let failed = lent.failed_tests(set, path).await;
        lent.give_back();
        failed
    }

    /// Runs a readiness script on an object. The error is one sentence.
    pub async fn run_script(&self, script: &str, object: &Value) -> Result<Option<HealthReport>, String> {
        let mut lent = self.lend().await;
        let request = || Request::Script {
            script: script.to_owned(),
            object: object.clone(),
        };
        let mut answer = lent.call(request()).await;
        // A kill from outside says nothing about the script, so it gets a second attempt.
        if matches!(answer, Err(WorkerEnd::Killed)) {
            answer = lent.call(request()).await;
        }
        match answer {
            Ok(Answer::Report(report)) => {
                lent.give_back();
                report
            }
            Ok(_) => Err(WorkerEnd::NoAnswer.to_string()),
            Err(end @ WorkerEnd::NotStarted(_)) => Err(end.to_string()),
            Err(end) => Err(format!("stopped: {end}")),
        }
    }

    /// Returns the process ids of the idle workers.
    pub fn idle_pids(&self) -> Vec<u32> {
        self.inner.idle().iter().filter_map(RuleWorker::pid).collect()
    }

    async fn lend(&self) -> LentWorker<'_> {
        let permit = self.inner.permits.acquire().await.ok();
        LentWorker {
            inner: &self.inner,
            worker: self.inner.idle().pop(),
            _permit: permit,
        }
    }
}

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Vec<RuleWorker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, FailedSets> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason why a set that failed before is not tried again.
    fn earlier_failure(&self, set: Digest) -> Option<NoOutcomes> {
        let failed = self.failed();
        if let Some(why) = failed.unreadable.get(&set) {
            return Some(NoOutcomes::Unreadable(why.clone()));
        }
        let ended = failed.ended.get(&set).copied().unwrap_or_default();
        (ended >= MOST_ENDED).then(|| {
            let why = format!(
                "its evaluation was stopped on {MOST_ENDED} stacks, so this run does not evaluate it again"
            );
            NoOutcomes::Ended(why)
        })
    }

    fn remember_unreadable(&self, set: Digest, why: String) -> NoOutcomes {
        self.failed().unreadable.insert(set, why.clone());
        NoOutcomes::Unreadable(why)
    }
}

/// A worker that is in use, or a place for one that is not started yet.
struct LentWorker<'pool> {
    inner: &'pool Inner,
    worker: Option<RuleWorker>,
    _permit: Option<SemaphorePermit<'pool>>,
}

impl LentWorker<'_> {
    fn give_back(mut self) {
        if let Some(worker) = self.worker.take()
            && worker.parsed.len() < MOST_SETS
        {
            self.inner.idle().push(worker);
        }
    }

    async fn outcomes(&mut self, set: &PolicySet, document: &SentDocument) -> Outcomes {
        let source = set.source().map_err(|why| NoOutcomes::Unreadable(why.clone()))?;
        if let Some(why) = self.inner.earlier_failure(set.digest()) {
            return Err(why);
        }
        self.parse(set, source).await?;
        let mut answer = self.evaluate(set, document).await;
        // A kill from outside says nothing about the set, so it gets a second attempt with a new worker.
        if answer == Err(WorkerEnd::Killed) {
            self.parse(set, source).await?;
            answer = self.evaluate(set, document).await;
        }
        answer.map_err(|end| {
            *self.inner.failed().ended.entry(set.digest()).or_default() += 1;
            NoOutcomes::Ended(format!("{} ({}): {end}", set.name(), source.path()))
        })
    }

    /// Evaluates a set that the worker has already parsed.
    async fn evaluate(
        &mut self,
        set: &PolicySet,
        document: &SentDocument,
    ) -> Result<Vec<RuleOutcome>, WorkerEnd> {
        let worker = self.worker.as_ref();
        let kept = worker.and_then(|worker| worker.document.as_ref());
        let is_new = kept.is_none_or(|kept| !document.is_in(kept));
        let answer = self
            .call(Request::Evaluate {
                set: set.digest(),
                document: is_new.then(|| document.clone()),
            })
            .await;
        match answer {
            Ok(Answer::Outcomes(outcomes)) => {
                if let Some(worker) = self.worker.as_mut().filter(|_| is_new) {
                    worker.document = Some(document.kept());
                }
                Ok(outcomes)
            }
            Ok(_) => {
                self.worker = None;
                Err(WorkerEnd::NoAnswer)
            }
            Err(end) => Err(end),
        }
    }

    async fn failed_tests(&mut self, set: &PolicySet, path: &str) -> Vec<FailedTest> {
        let failed = |name, why: &str| vec![FailedTest::new(path, name, why)];
        let source = match set.source() {
            Ok(source) => source,
            Err(why) => return failed("load", why),
        };
        if let Err(NoOutcomes::Unreadable(why) | NoOutcomes::Ended(why)) = self.parse(set, source).await {
            return failed("load", &why);
        }
        match self.call(Request::Test { set: set.digest() }).await {
            Ok(Answer::FailedTests(failed)) => failed,
            Ok(_) => failed("load", &WorkerEnd::NoAnswer.to_string()),
            Err(end) => failed("tests", &end.to_string()),
        }
    }

    /// Makes the worker parse a set, unless it has done so.
    async fn parse(&mut self, set: &PolicySet, source: &Arc<SetSource>) -> Result<(), NoOutcomes> {
        let digest = set.digest();
        let parsed = self.worker.as_ref().map(|worker| &worker.parsed);
        if parsed.is_some_and(|parsed| parsed.contains(&digest)) {
            return Ok(());
        }
        if let Some(why) = self.inner.earlier_failure(digest) {
            return Err(why);
        }
        let mut answer = self.parse_source(digest, source).await;
        if matches!(answer, Err(WorkerEnd::Killed)) {
            answer = self.parse_source(digest, source).await;
        }
        match answer {
            Ok(Answer::Parsed) => {
                if let Some(worker) = &mut self.worker {
                    worker.parsed.insert(digest);
                }
                Ok(())
            }
            Ok(Answer::Unreadable(why)) => Err(self.inner.remember_unreadable(digest, why)),
            Ok(_) => Err(NoOutcomes::Unreadable(WorkerEnd::NoAnswer.to_string())),
            // These failures do not come from the set, so it may be tried again on the next stack.
            Err(end @ (WorkerEnd::NotStarted(_) | WorkerEnd::Killed | WorkerEnd::Deadline(_))) => {
                Err(NoOutcomes::Unreadable(end.to_string()))
            }
            Err(end) => {
                let file = self.file_at_fault(source).await;
                let file = file.unwrap_or_else(|| source.path().to_owned());
                Err(self.inner.remember_unreadable(digest, format!("{file}: {end}")))
            }
        }
    }

    async fn parse_source(&mut self, set: Digest, source: &Arc<SetSource>) -> Result<Answer, WorkerEnd> {
        let source = Arc::clone(source);
        self.call(Request::Parse { set, source }).await
    }

    /// Finds the file that kills a worker when it is parsed alone, to name it in the message.
    async fn file_at_fault(&mut self, source: &Arc<SetSource>) -> Option<String> {
        let paths: Vec<&str> = source.paths().collect();
        if let [only] = paths[..] {
            return Some(only.to_owned());
        }
        for path in paths {
            let mut digest = DigestBuilder::new("policy-file");
            digest.part(path.as_bytes());
            let alone = Arc::new(source.only(path));
            if self.parse_source(digest.finish(), &alone).await.is_err() {
                return Some(path.to_owned());
            }
        }
        None
    }

    /// Sends a request to the worker, which is started if necessary.
    async fn call(&mut self, request: Request) -> Result<Answer, WorkerEnd> {
        let worker = match &mut self.worker {
            Some(worker) => worker,
            none => {
                let inner = self.inner;
                none.insert(RuleWorker::start(inner.executable.as_deref(), inner.limits)?)
            }
        };
        let answer = worker.call(request).await;
        if answer.is_err() {
            self.worker = None;
        }
        answer
    }
}
