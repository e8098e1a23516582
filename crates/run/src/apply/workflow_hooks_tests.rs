//! Kills at every step: a workflow runs once for each Spec.

use std::sync::{Arc, Mutex};

use super::*;
use konverge_engine::runtime::RecordFailure;

/// What GitHub and the store know.
#[derive(Default)]
struct World {
    /// The stack and the digest of each run, by its id less one.
    runs: Vec<(String, Digest)>,
    records: BTreeMap<String, Value>,
    /// How the runs end; without an entry they succeed.
    failing: Vec<u64>,
    /// The runs that do not end in time.
    hanging: Vec<u64>,
    steps: usize,
    /// The step at which the process is killed, and whether that is before its effect.
    kill: Option<(usize, bool)>,
    /// The answer to the next start is lost; whether it took effect.
    lost: Option<bool>,
    /// The next start is refused.
    is_refused: bool,
    /// No list has the newest runs yet, so many of them.
    unlisted: usize,
}

#[derive(Clone, Default)]
struct Outside(Arc<Mutex<World>>);

impl Outside {
    fn step<T>(&self, effect: impl FnOnce(&mut World) -> T) -> Result<T, UserError> {
        let killed = || UserError::new(ErrorKind::Internal, "killed");
        let mut world = self.0.lock().unwrap();
        world.steps += 1;
        let step = world.steps;
        match world.kill {
            Some((at, before)) if step > at || (step == at && before) => Err(killed()),
            Some((at, _)) if step == at => {
                effect(&mut world);
                Err(killed())
            }
            _ => Ok(effect(&mut world)),
        }
    }

    /// Somebody starts a workflow by hand, as the hint says.
    fn start_by_hand(&self, spec: &str) {
        let run = ("shop/prod".to_owned(), Digest::of_bytes(spec.as_bytes()));
        self.0.lock().unwrap().runs.push(run);
    }

    fn runs(&self) -> usize {
        self.0.lock().unwrap().runs.len()
    }
}

#[async_trait]
impl WorkflowStarter for Outside {
    async fn newest_run(&self, _: &str) -> Result<u64, UserError> {
        self.step(|world| (world.runs.len() - world.unlisted) as u64)
    }

    async fn start(&self, _: &str, call: WorkflowCall<'_>) -> WorkflowStart {
        let failure = |what: &str| UserError::new(ErrorKind::Github, what);
        let started = self.step(|world| {
            if std::mem::take(&mut world.is_refused) {
                return WorkflowStart::Refused(failure("the token may not start it"));
            }
            let lost = world.lost.take();
            if lost != Some(false) {
                world.runs.push((call.stack.to_string(), call.digest));
            }
            match lost {
                None => WorkflowStart::Started(world.runs.len() as u64),
                Some(_) => WorkflowStart::Unknown(failure("no answer")),
            }
        });
        started.unwrap_or_else(WorkflowStart::Unknown)
    }

    async fn find(
        &self,
        _: &str,
        call: WorkflowCall<'_>,
        after: u64,
        timeout: Duration,
    ) -> Result<Option<u64>, UserError> {
        assert_eq!(timeout, SEARCH);
        self.step(|world| {
            let named = (call.stack.to_string(), call.digest);
            let mut runs = world.runs.iter().zip(1..);
            runs.find(|(run, id)| *id > after && **run == named)
                .map(|(_, id)| id)
        })
    }

    async fn wait(&self, _: &str, run: u64, _: Duration) -> Result<Option<UserError>, UserError> {
        let (fails, hangs) =
            self.step(|world| (world.failing.contains(&run), world.hanging.contains(&run)))?;
        let failure = || UserError::new(ErrorKind::Github, "it ended with `failure`");
        if hangs {
            Err(UserError::new(ErrorKind::Github, "it has not ended"))
        } else {
            Ok(fails.then(failure))
        }
    }
}

#[async_trait]
impl Journal for Outside {
    async fn intend(&self, _: Vec<JournalEntry>) -> Result<(), UserError> {
        unreachable!("a workflow is not a resource")
    }

    async fn record(&self, entry: JournalEntry) -> Result<(), RecordFailure> {
        self.step(|world| match entry {
            JournalEntry::Runtime { key, value } => world.records.insert(key, value),
            _ => unreachable!("a workflow is not a resource"),
        })?;
        Ok(())
    }

    async fn check_lease(&self) -> Result<(), UserError> {
        self.step(|_| ())
    }
}

fn config() -> Config {
    let workflow = |when, workflow: &str| HookWorkflow {
        when,
        stacks: "shop/*".to_owned(),
        workflow: workflow.to_owned(),
        timeout: None,
    };
    let mut config = Config::default();
    config.apply.hooks.workflows = vec![
        workflow(WorkflowTime::Pre, "backup.yml"),
        workflow(WorkflowTime::Post, "smoke.yml"),
        // The same file twice is one workflow.
        workflow(WorkflowTime::Post, "smoke.yml"),
    ];
    config
}

/// A process: it reads the records of the store once.
async fn process(outside: &Outside, spec: &str, has_starter: bool) -> Result<(), UserError> {
    let (config, stack) = (config(), "shop/prod".parse().unwrap());
    let records = outside.0.lock().unwrap().records.clone();
    let starter: &dyn WorkflowStarter = outside;
    let hooks = WorkflowHooks {
        config: &config,
        starter: Some(starter).filter(|_| has_starter),
        journal: outside,
        recorded: &records,
        call: WorkflowCall {
            stack: &stack,
            folder: &RepoPath::root(),
            known_as: &OtherNames::default(),
            commit: None,
            digest: Digest::of_bytes(spec.as_bytes()),
        },
    };
    hooks.run(WorkflowTime::Pre).await?;
    hooks.run(WorkflowTime::Post).await
}

#[tokio::test]
async fn killed_at_each_step_a_workflow_runs_once_for_each_spec() {
    let mut unknown = 0;
    for before in [false, true] {
        for at in 1.. {
            let outside = Outside::default();
            // The runs of others come between.
            let others = ("shop/dev".to_owned(), Digest::of_bytes(b"one"));
            outside.0.lock().unwrap().runs.push(others.clone());
            outside.0.lock().unwrap().kill = Some((at, before));
            let killed = process(&outside, "one", true).await.is_err();
            outside.0.lock().unwrap().runs.push(others);
            outside.0.lock().unwrap().kill = None;
            let before_again = outside.runs();
            if let Err(failure) = process(&outside, "one", true).await {
                // It was to be started, and no run is found: nothing is started until somebody says that it did not
                // run.
                unknown += 1;
                assert_unknown(&failure);
                assert_unknown(&process(&outside, "one", true).await.unwrap_err());
                assert_eq!(outside.runs(), before_again, "{at} {before}");
                outside.start_by_hand("one");
                process(&outside, "one", true).await.unwrap();
            }
            assert_eq!(outside.runs(), 4, "{at} {before}");
            process(&outside, "two", true).await.unwrap();
            assert_eq!(outside.runs(), 6, "{at} {before}");
            if !killed {
                assert!(at > 12, "two workflows have more steps than {at}");
                break;
            }
        }
    }
    // After the record, around the fence, and before the start; for two workflows.
    assert_eq!(unknown, 8);
}

fn assert_unknown(failure: &UserError) {
    assert!(
        failure.message.contains("it is unknown whether the workflow ran"),
        "{failure}"
    );
    let hints = failure.hints.join("\n");
    let digest = Digest::of_bytes(b"one").to_string();
    for said in ["shop/prod", &digest, "run-name", "by hand"] {
        assert!(hints.contains(said), "{said}: {hints}");
    }
}

#[tokio::test]
async fn after_a_lost_answer_the_run_is_found_or_nothing_is_started() {
    let outside = Outside::default();
    outside.0.lock().unwrap().lost = Some(true);
    process(&outside, "one", true).await.unwrap();
    assert_eq!(outside.runs(), 2);

    let outside = Outside::default();
    outside.0.lock().unwrap().lost = Some(false);
    let failure = process(&outside, "one", true).await.unwrap_err();
    assert!(failure.message.contains("no answer"), "{failure}");
    assert_unknown(&failure);
    assert_unknown(&process(&outside, "one", true).await.unwrap_err());
    assert_eq!(outside.runs(), 0);
    outside.start_by_hand("one");
    process(&outside, "one", true).await.unwrap();
    assert_eq!(outside.runs(), 2, "the `post` workflow was not meant");
}

#[tokio::test]
async fn what_was_refused_is_started_by_the_next_apply() {
    let outside = Outside::default();
    outside.0.lock().unwrap().is_refused = true;
    let failure = process(&outside, "one", true).await.unwrap_err();
    assert!(failure.message.contains("may not start"), "{failure}");
    assert_eq!(outside.runs(), 0);
    process(&outside, "one", true).await.unwrap();
    assert_eq!(outside.runs(), 2);
}

/// A failed run is not taken for the one after it, if the list of runs does not have it yet.
#[tokio::test]
async fn a_late_list_does_not_bring_a_failed_run_back() {
    let outside = Outside::default();
    outside.0.lock().unwrap().failing = vec![1];
    process(&outside, "one", true).await.unwrap_err();
    {
        let mut world = outside.0.lock().unwrap();
        (world.unlisted, world.lost) = (1, Some(true));
    }
    process(&outside, "one", true).await.unwrap();
    assert_eq!(outside.runs(), 3);
}

#[tokio::test]
async fn only_an_end_that_was_seen_is_followed_by_another_run() {
    let outside = Outside::default();
    outside.0.lock().unwrap().hanging = vec![1];
    let failure = process(&outside, "one", true).await.unwrap_err();
    assert_eq!(
        failure.message,
        "the workflow `backup.yml` (`pre`): it has not ended"
    );
    process(&outside, "one", true).await.unwrap_err();
    assert_eq!(outside.runs(), 1);
    {
        let mut world = outside.0.lock().unwrap();
        (world.hanging, world.failing) = (Vec::new(), vec![1, 3]);
    }
    for (runs, failed) in [(1, "backup.yml"), (3, "smoke.yml")] {
        let failure = process(&outside, "one", true).await.unwrap_err();
        assert!(failure.message.contains(failed), "{failure}");
        assert_eq!(outside.runs(), runs);
    }
    process(&outside, "one", true).await.unwrap();
    assert_eq!(outside.runs(), 4);
}

#[tokio::test]
async fn without_a_starter_what_is_due_is_refused() {
    let outside = Outside::default();
    let refused = process(&outside, "one", false).await.unwrap_err();
    assert!(
        refused.message.contains("`backup.yml`") && refused.message.contains("konverge ci"),
        "{refused}"
    );
    process(&outside, "one", true).await.unwrap();
    process(&outside, "one", false).await.unwrap();

    // A record that cannot be read is not a success.
    {
        let mut world = outside.0.lock().unwrap();
        let record = world.records.get_mut("hook-workflow/pre/backup.yml").unwrap();
        record["succeeded"] = "yes".into();
    }
    let refused = process(&outside, "one", true).await.unwrap_err();
    assert!(refused.message.contains("cannot be read"), "{refused}");
}

#[test]
fn a_stack_that_left_has_no_records() {
    let mut state = StackState::empty("shop/prod".parse().unwrap(), RepoPath::root());
    let record = |key: &str| (key.to_owned(), Value::Null);
    state
        .runtime
        .extend([record("hook-workflow/pre/a.yml"), record("terraform")]);
    forget(&mut state);
    assert_eq!(state.runtime.into_keys().collect::<Vec<_>>(), ["terraform"]);
}
