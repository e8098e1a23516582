//! The news of an apply or a drift check, and which of them each receiver gets.

use std::collections::BTreeMap;

use konverge_base::{
    error::UserError,
    model::{
        RepoPath, StackId,
        apply_result::{ApplyReport, ResourceResult, StackOutcome, StackResult, WaitReason, Waiting},
        plan::{Action, Plan, StackPlan},
        text::json_name,
    },
};
use konverge_config::Notify;
use konverge_notify::{NotifyDetail, NotifyEvent};
use konverge_rollout::RolloutEvent;
use konverge_rollout_driver::EndedRollouts;
use konverge_run::apply::{self, Decisions};

/// One event with its stacks. Without stacks, the event concerns all of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct News {
    pub(super) topic: NotifyEvent,
    pub(super) stacks: Vec<NewsStack>,
    fact: Fact,
}

/// A stack of an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NewsStack {
    pub(super) id: StackId,
    folder: RepoPath,
    /// The number that the notification shows for this stack; [`Fact`] says what is counted.
    count: usize,
}

/// Details of an event besides its stacks.
#[derive(Debug, Clone, PartialEq)]
enum Fact {
    None,
    /// The kind of the error.
    NotStarted(String),
    Restored,
    Overridden,
    /// The reason why each stack waits, by stack.
    Waits(BTreeMap<StackId, WaitReason>),
}

impl News {
    fn new(topic: NotifyEvent, stacks: Vec<NewsStack>) -> Self {
        Self {
            topic,
            stacks,
            fact: Fact::None,
        }
    }

    /// Creates the news of an apply that did not start. The message of the error may contain secrets, so only its kind
    /// is sent.
    pub(super) fn not_started(failure: &UserError) -> Self {
        Self {
            fact: Fact::NotStarted(json_name(failure.kind)),
            ..Self::new(NotifyEvent::ApplyFailed, Vec::new())
        }
    }

    /// Returns the details of the notification besides its stacks.
    pub(super) fn detail(&self) -> NotifyDetail {
        let count = self.stacks.iter().map(|stack| stack.count).sum();
        match &self.fact {
            Fact::NotStarted(kind) => NotifyDetail::NotStarted(kind.clone()),
            Fact::Restored if count > 0 => NotifyDetail::Restored(count),
            Fact::Overridden => NotifyDetail::Findings(count),
            Fact::Waits(reasons) => {
                let mut all = self.stacks.iter().filter_map(|stack| reasons.get(&stack.id));
                match all.next() {
                    Some(first) if all.all(|other| other == first) => NotifyDetail::Waits(*first),
                    _ => NotifyDetail::None,
                }
            }
            Fact::None | Fact::Restored => NotifyDetail::None,
        }
    }
}

/// Selects the news for a receiver: the configured events, about the stacks that match.
pub(super) fn for_receiver(receiver: &Notify, news: &[News]) -> Vec<News> {
    let mut selected: Vec<News> = Vec::new();
    for news in news {
        let Some(topic) = receiver.event_for(news.topic) else {
            continue;
        };
        let mut news = News {
            topic,
            ..news.clone()
        };
        let concerns_all = news.stacks.is_empty();
        news.stacks
            .retain(|stack| receiver.selects(&stack.id, &stack.folder));
        if news.stacks.is_empty() && !concerns_all {
            continue;
        }
        // An event that the receiver gets under a more general name is added to the news of that name, so that one
        // message is sent.
        match selected.iter_mut().find(|earlier| earlier.topic == topic) {
            Some(earlier) => earlier.stacks.extend(news.stacks),
            None => selected.push(news),
        }
    }
    selected
}

/// Returns the news of an apply. Skipped stacks are a result of other news, so they are not named. Stacks that a
/// rollout still holds back were not tried, so there is no news about them.
pub(super) fn of_apply(report: &ApplyReport, decisions: &Decisions, rollouts: &EndedRollouts) -> Vec<News> {
    let select = |wanted: &dyn Fn(&StackOutcome) -> bool| -> Vec<_> {
        let those = report.stacks.iter().filter(|stack| wanted(stack));
        let those = those.filter(|stack| !rollouts.kept_back.contains(&stack.id));
        let those = those.map(|stack| NewsStack {
            id: stack.id.clone(),
            folder: stack.stack.clone(),
            count: stack.grounds.overrides.len(),
        });
        those.collect()
    };
    let unreviewed = || decisions.stopped.iter().map(|stopped| &stopped.plan);
    let is_unreviewed = |stack: &StackOutcome| unreviewed().any(|plan| plan.id == stack.id);
    let is_denied =
        |stack: &StackOutcome| stack.result == StackResult::Stopped && decisions.denied.contains(&stack.id);
    let is_failed_hook = |stack: &StackOutcome| {
        is_failed_job(stack)
            || (stack.result == StackResult::Failed && decisions.failed_workflows.contains(&stack.id))
    };
    // The groups exclude each other, so that a receiver gets one message about a failure of a stack.
    let has_failed = |stack: &StackOutcome| {
        matches!(stack.result, StackResult::Failed | StackResult::Stopped)
            && !is_denied(stack)
            && !is_failed_hook(stack)
    };
    let has_begun = |stack: &StackOutcome| {
        use StackResult::{Applied, Failed, Waiting};
        matches!(stack.result, Applied | Failed | Waiting)
    };
    let is_written =
        |stack: &StackOutcome| matches!(stack.result, StackResult::Applied | StackResult::Waiting);
    // A success is news only if the whole apply ended well.
    let ended_well = apply::ended_well(report) || apply::only_waits(report);
    let mut all = vec![
        News::new(NotifyEvent::Unreviewed, {
            let stacks = unreviewed().map(|plan| NewsStack {
                id: plan.id.clone(),
                folder: plan.stack.clone(),
                count: 0,
            });
            stacks.collect()
        }),
        News::new(
            NotifyEvent::ApplyFailed,
            select(&|stack| has_failed(stack) && !is_unreviewed(stack)),
        ),
        News::new(NotifyEvent::HookFailed, select(&is_failed_hook)),
        News::new(
            NotifyEvent::Denied,
            select(&|stack| is_denied(stack) && !is_unreviewed(stack)),
        ),
        News::new(
            NotifyEvent::ApplyDone,
            select(&|stack| ended_well && stack.result == StackResult::Applied),
        ),
        News {
            fact: Fact::Overridden,
            ..News::new(
                NotifyEvent::Overridden,
                select(&|stack| has_begun(stack) && !stack.grounds.overrides.is_empty()),
            )
        },
        News::new(
            NotifyEvent::SecretRotated,
            select(&|stack| is_written(stack) && decisions.rotated.contains(&stack.id)),
        ),
        News {
            fact: Fact::Waits(wait_reasons(report)),
            ..News::new(NotifyEvent::Waiting, select(&waits_for_somebody))
        },
    ];
    all.extend(rollouts.events.iter().map(of_rollout));
    all.retain(|news| !news.stacks.is_empty());
    all
}

/// Returns the reason why each stack waits. Only a rollout inside a cluster records none, because it always waits for
/// its promotion.
fn wait_reasons(report: &ApplyReport) -> BTreeMap<StackId, WaitReason> {
    let waiting = report
        .stacks
        .iter()
        .filter(|stack| stack.result == StackResult::Waiting);
    let reason = |stack: &StackOutcome| {
        stack
            .waiting
            .map_or(WaitReason::Promotion, |waiting| waiting.reason)
    };
    waiting.map(|stack| (stack.id.clone(), reason(stack))).collect()
}

/// Returns true if a stack waits for a person, and not for a bake time or another wave of its rollout.
fn waits_for_somebody(stack: &StackOutcome) -> bool {
    let is_of_rollout = |waiting: Waiting| waiting.wave.is_some() || waiting.reason == WaitReason::Wave;
    let is_asked = |waiting: Waiting| matches!(waiting.reason, WaitReason::Approval | WaitReason::Resume);
    stack.result == StackResult::Waiting
        && stack
            .waiting
            .is_none_or(|waiting| !is_of_rollout(waiting) || is_asked(waiting))
}

fn of_rollout(event: &RolloutEvent) -> News {
    let stacks = event.stacks.iter().map(|(id, folder)| NewsStack {
        id: id.clone(),
        folder: folder.clone(),
        count: 0,
    });
    News::new(event.topic, stacks.collect())
}

/// Returns true if only Jobs of hooks failed.
fn is_failed_job(stack: &StackOutcome) -> bool {
    let mut failed = stack
        .resources
        .iter()
        .filter(|resource| resource.result == ResourceResult::Failed)
        .peekable();
    stack.result == StackResult::Failed
        && failed.peek().is_some()
        && failed.all(|resource| resource.action == Action::Run)
}

/// Returns the news of a drift check. A new version of a secret counts as drift until it is applied.
pub(super) fn of_drift(plan: &Plan, restored: &[StackId]) -> Vec<News> {
    let select = |wanted: &dyn Fn(&StackPlan) -> bool| -> Vec<_> {
        let those = plan.stacks.iter().filter(|stack| wanted(stack));
        let those = those.map(|stack| NewsStack {
            id: stack.id.clone(),
            folder: stack.stack.clone(),
            count: usize::from(restored.contains(&stack.id)),
        });
        those.collect()
    };
    let mut all = vec![
        News {
            fact: Fact::Restored,
            ..News::new(NotifyEvent::Drift, select(&|stack| stack.summary.changed() > 0))
        },
        News::new(NotifyEvent::SecretRotated, select(&StackPlan::rotates_secret)),
    ];
    all.retain(|news| !news.stacks.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::{
        error::ErrorKind,
        model::{
            Digest,
            apply_result::ResourceOutcome,
            authorization::{Authorization, PolicyOverride},
            plan::Basis,
        },
    };
    use konverge_config::Config;
    use konverge_run::apply::StoppedPlan;

    fn outcome(id: &str, result: StackResult) -> StackOutcome {
        StackOutcome {
            stack: RepoPath::normalize(&format!("appops/{id}")).unwrap(),
            id: id.parse().unwrap(),
            result,
            digest: Digest::of_bytes(b""),
            serial: None,
            grounds: Authorization::default(),
            waiting: None,
            resources: Vec::new(),
            error: None,
        }
    }

    fn news(stacks: Vec<StackOutcome>, unreviewed: &[&str], denied: &[&str], rotated: &[&str]) -> Vec<News> {
        let report = ApplyReport { version: 1, stacks };
        let set = |ids: &[&str]| ids.iter().map(|id| id.parse().unwrap()).collect();
        let stopped = |id: &&str| StoppedPlan {
            plan: StackPlan::new(
                outcome(id, StackResult::Stopped).stack,
                id.parse().unwrap(),
                Basis::Live,
                vec![],
            ),
            units: vec![],
        };
        let decisions = Decisions {
            stopped: unreviewed.iter().map(stopped).collect(),
            denied: set(denied),
            rotated: set(rotated),
            ..Decisions::default()
        };
        of_apply(&report, &decisions, &EndedRollouts::default())
    }

    fn names(news: &[News]) -> Vec<(NotifyEvent, Vec<String>)> {
        let one = |news: &News| {
            let ids = news.stacks.iter().map(|stack| stack.id.to_string());
            (news.topic, ids.collect())
        };
        news.iter().map(one).collect()
    }

    fn told(results: &[(&str, StackResult)], unreviewed: &[&str]) -> Vec<(NotifyEvent, Vec<String>)> {
        let stacks = results.iter().map(|(id, result)| outcome(id, *result));
        names(&news(stacks.collect(), unreviewed, &[], &[]))
    }

    fn one(topic: NotifyEvent, stack: &str) -> (NotifyEvent, Vec<String>) {
        (topic, vec![stack.to_owned()])
    }

    #[test]
    fn each_topic_names_its_own_stacks() {
        use StackResult::{Applied, Failed, HeldBack, Stopped, Unchanged, Waiting};
        assert_eq!(told(&[("a/dev", Unchanged)], &[]), []);
        let done = [("a/dev", Applied), ("b/dev", Unchanged)];
        assert_eq!(told(&done, &[]), [one(NotifyEvent::ApplyDone, "a/dev")]);
        let waits = [("a/dev", Applied), ("b/dev", Waiting), ("c/dev", HeldBack)];
        assert_eq!(
            told(&waits, &[]),
            [
                one(NotifyEvent::ApplyDone, "a/dev"),
                one(NotifyEvent::Waiting, "b/dev")
            ]
        );
        let failed = [("a/dev", Applied), ("b/dev", Failed), ("c/dev", HeldBack)];
        assert_eq!(told(&failed, &[]), [one(NotifyEvent::ApplyFailed, "b/dev")]);
        let stopped = [("a/dev", Stopped), ("b/dev", Stopped), ("c/dev", Applied)];
        assert_eq!(
            told(&stopped, &["a/dev"]),
            [
                one(NotifyEvent::Unreviewed, "a/dev"),
                one(NotifyEvent::ApplyFailed, "b/dev")
            ]
        );
        assert_eq!(
            told(&[("a/dev", Stopped)], &["a/dev"]),
            [one(NotifyEvent::Unreviewed, "a/dev")]
        );
    }

    #[test]
    fn what_is_waited_for_is_told_as_what_it_is() {
        let stack = |id: &str, reason, wave| StackOutcome {
            waiting: Some(Waiting {
                reason,
                until: None,
                wave,
            }),
            ..outcome(id, StackResult::Waiting)
        };
        let promotion = || stack("a/dev", WaitReason::Promotion, None);
        let approval = |id: &str| stack(id, WaitReason::Approval, Some(2));
        let detail = |stacks| {
            let news = news(stacks, &[], &[], &[]);
            assert_eq!(news.len(), 1);
            news[0].detail()
        };
        assert_eq!(
            detail(vec![promotion()]),
            NotifyDetail::Waits(WaitReason::Promotion)
        );
        let next = stack("d/dev", WaitReason::Wave, Some(3));
        assert_eq!(
            detail(vec![approval("b/dev"), approval("c/dev"), next]),
            NotifyDetail::Waits(WaitReason::Approval)
        );
        assert_eq!(detail(vec![promotion(), approval("b/dev")]), NotifyDetail::None);
    }

    #[test]
    fn a_hook_that_failed_alone_is_told_as_one() {
        let resource = |id: &str, action, result| ResourceOutcome {
            id: id.parse().unwrap(),
            action,
            result,
            written: false,
            message: None,
            is_stack_error: false,
        };
        let stack = |resources| StackOutcome {
            resources,
            ..outcome("a/dev", StackResult::Failed)
        };
        let hook = resource("batch/v1:Job:a:migrate", Action::Run, ResourceResult::Failed);
        let app = |result| resource("apps/v1:Deployment:a:a", Action::Update, result);
        let of = |resources| names(&news(vec![stack(resources)], &[], &[], &[]));
        assert_eq!(
            of(vec![hook.clone(), app(ResourceResult::Skipped)]),
            [one(NotifyEvent::HookFailed, "a/dev")]
        );
        let failure = [one(NotifyEvent::ApplyFailed, "a/dev")];
        assert_eq!(of(vec![hook, app(ResourceResult::Failed)]), failure);
        assert_eq!(of(Vec::new()), failure);
    }

    #[test]
    fn denials_overrides_and_rotations_are_told_apart() {
        let mut overridden = outcome("c/dev", StackResult::Applied);
        overridden.grounds.overrides = vec![PolicyOverride {
            finding: Digest::of_bytes(b""),
            rule: "maps/main.deny".into(),
            message: "no".into(),
            by: vec!["grace".into()],
            why: None,
        }];
        let all = || {
            vec![
                outcome("a/dev", StackResult::Stopped),
                outcome("b/dev", StackResult::Failed),
                overridden.clone(),
            ]
        };
        let news = news(all(), &[], &["a/dev", "b/dev"], &["b/dev", "c/dev"]);
        assert_eq!(
            names(&news),
            [
                one(NotifyEvent::ApplyFailed, "b/dev"),
                one(NotifyEvent::Denied, "a/dev"),
                one(NotifyEvent::Overridden, "c/dev"),
                one(NotifyEvent::SecretRotated, "c/dev"),
            ]
        );
        assert_eq!(news[2].detail(), NotifyDetail::Findings(1));

        let receiver = |settings: &str| {
            let text = format!("notify: [{{kind: slack, url_env: U, {settings}}}]");
            Config::parse(&text).unwrap().notify.remove(0)
        };
        let of = |settings: &str| names(&for_receiver(&receiver(settings), &news));
        // Who asked for failures before denials were told apart misses none, and gets one message.
        let both = (
            NotifyEvent::ApplyFailed,
            vec!["b/dev".to_owned(), "a/dev".to_owned()],
        );
        assert_eq!(of("on: [apply-failed]"), [both]);
        assert_eq!(of("on: [denied]"), [one(NotifyEvent::Denied, "a/dev")]);
        assert_eq!(
            of("match: 'appops/b/*'"),
            [one(NotifyEvent::ApplyFailed, "b/dev")]
        );
        // An apply that did not start concerns every stack.
        let early = [News::not_started(&UserError::new(ErrorKind::Store, "secret"))];
        let told = for_receiver(&receiver("match: 'appops/b/*'"), &early);
        assert_eq!(told[0].detail(), NotifyDetail::NotStarted("store".into()));
    }
}
