//! The table of what a job may do: event × caller × GitHub's answer.

use std::{collections::BTreeMap, path::Path};

use konverge_run::{RunContext, forge};
use konverge_secrets::{HashKey, Secrets};
use serde_json::json;

use super::{super::job_trust::Grants, *};
use crate::policy::policy_fixture::run_context;

const DIGEST: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn commit(name: char) -> CommitId {
    name.to_string().repeat(40).parse().unwrap()
}

/// GitHub's answer: the tip is `f…`, and the branch contains the commit of the event. The client needs a runtime.
fn main_branch() -> BranchAnswer {
    let env = BTreeMap::from([("GITHUB_TOKEN".to_owned(), "ghs_token".to_owned())]);
    let run = RunContext {
        env,
        ..run_context(Path::new("."), Secrets::new(HashKey::derive("k")))
    };
    let branch = DefaultBranch {
        name: "main".to_owned(),
        tip: commit('f'),
        protected: true,
    };
    let client = forge::connect(&run, "acme/konfig").unwrap().unwrap();
    BranchAnswer {
        upstream: Upstream { branch, client },
        holds: true,
    }
}

fn pull_request(base_branch: &str, outside: bool) -> PullRequestEvent {
    PullRequestEvent {
        action: "opened".to_owned(),
        base_changed: false,
        number: 7,
        author: "ada".to_owned(),
        base: commit('b'),
        base_branch: base_branch.to_owned(),
        default_branch: "main".to_owned(),
        head: commit('a'),
        head_branch: "topic".to_owned(),
        merge_commit: None,
        from_fork: outside,
        dependabot: false,
        merged: false,
    }
}

fn push(full_ref: &str) -> PushEvent {
    PushEvent {
        ref_name: full_ref.to_owned(),
        before: Some(commit('b')),
        after: Some(commit('a')),
        forced: false,
        default_branch: "main".to_owned(),
    }
}

fn dispatch(full_ref: &str, approve: &str) -> JobEvent {
    JobEvent::WorkflowDispatch {
        inputs: BTreeMap::from([("approve".to_owned(), approve.to_owned())]),
        ref_name: full_ref.to_owned(),
        default_branch: "main".to_owned(),
    }
}

fn call(action: &str, approve: &str) -> JobEvent {
    JobEvent::RepositoryDispatch {
        action: action.to_owned(),
        payload: json!({"approve": approve}),
    }
}

fn workflow_run(event: &str, from_fork: bool, dependabot: bool) -> JobEvent {
    JobEvent::WorkflowRun(WorkflowRunEvent {
        pull_request: None,
        run_id: 1,
        event: event.to_owned(),
        conclusion: "success".to_owned(),
        head: commit('a'),
        head_branch: "topic".to_owned(),
        head_repository: "mallory/konfig".to_owned(),
        default_branch: "main".to_owned(),
        from_fork,
        dependabot,
    })
}

fn queue(base_branch: &str) -> JobEvent {
    JobEvent::MergeGroup {
        base: commit('b'),
        head: commit('a'),
        base_branch: base_branch.to_owned(),
        default_branch: "main".to_owned(),
        pull_request: Some(7),
    }
}

/// A caller in one line: actor, starter, attempt, the job's digests, its environment, the run's ref.
fn caller(
    actor: &'static str,
    attempt: u32,
    approve: &'static str,
    environment: Option<&'static str>,
    ref_name: &'static str,
) -> Caller<'static> {
    Caller {
        forge: konverge_forge::ForgeKind::Github,
        ref_name,
        actor,
        starter: "ada",
        attempt,
        approve,
        environment,
        for_environment: None,
        on_schedule: ScheduledTask::Drift,
    }
}

fn said(decision: Result<Decision<'_>, UserError>) -> String {
    match decision {
        Err(failure) => format!("refused: {}", failure.message),
        Ok(Decision::Ask(_)) => "ask".to_owned(),
        Ok(Decision::Nothing(why)) => format!("nothing: {why}"),
        Ok(Decision::Granted(authority)) => described(&authority),
    }
}

fn described(authority: &Authority) -> String {
    let into = authority
        .elsewhere()
        .map_or(String::new(), |into| format!(" into {into}"));
    let task = match &authority.task {
        Task::PullRequest { .. } => "preview".to_owned(),
        Task::MergeGroup { .. } => "queue".to_owned(),
        Task::Outside { .. } => "outside".to_owned(),
        Task::Apply(target) => {
            let by = match &target.agreeing {
                DispatchApprovers::Starter { login, .. } => login,
                DispatchApprovers::Environment => "environment",
            };
            format!(
                "apply {} ({} agreed by {by})",
                &target.head.as_str()[..1],
                target.approved.digests.len()
            )
        }
        Task::Drift(upstream) => format!("drift {}", &upstream.branch.tip.as_str()[..1]),
        Task::Restore { approved, .. } => format!("restore {}", approved.digests.len()),
    };
    let power = authority.branch().map_or("no power".to_owned(), |branch| {
        format!("power of {}", &branch.tip.as_str()[..1])
    });
    let pushed = if authority.pushed { ", pushed" } else { "" };
    format!("{task}{into}, {:?}, {power}{pushed}", authority.trust)
}

/// Decides with this answer of GitHub, if it is asked.
fn decide(event: &JobEvent, caller: Caller<'_>, answer: Option<BranchAnswer>) -> Result<Authority, String> {
    let decision = match Authority::decide(event, caller) {
        Ok(Decision::Ask(question)) => question.decide(answer).map(Decision::Granted),
        other => other,
    };
    match decision {
        Ok(Decision::Granted(authority)) => Ok(authority),
        other => Err(said(other)),
    }
}

fn told(event: &JobEvent, caller: Caller<'_>, answer: Option<BranchAnswer>) -> String {
    decide(event, caller, answer).map_or_else(|said| said, |authority| described(&authority))
}

/// Event × caller × answer. `topic`, the tag `main` and the odd branch are never the default branch.
#[tokio::test]
async fn the_table() {
    let on = |ref_name| caller("bob", 1, "", None, ref_name);
    let (main, topic, tag) = ("refs/heads/main", "refs/heads/topic", "refs/tags/main");
    let gone = JobEvent::Push(PushEvent {
        after: None,
        ..push(main)
    });
    let closed = JobEvent::PullRequest(PullRequestEvent {
        action: "closed".to_owned(),
        ..pull_request("main", false)
    });
    let bot = JobEvent::PullRequest(PullRequestEvent {
        dependabot: true,
        ..pull_request("main", false)
    });
    let own = |base| JobEvent::PullRequest(pull_request(base, false));
    let fork = |base| JobEvent::PullRequest(pull_request(base, true));
    let pushed = |full_ref| JobEvent::Push(push(full_ref));
    let clock = JobEvent::Schedule {
        cron: "17 5 * * *".to_owned(),
    };
    let scheduled = |caller: Caller<'static>| Caller {
        on_schedule: ScheduledTask::Apply,
        ..caller
    };
    let refused = |full_ref: &str| format!("refused: the workflow was started on `{full_ref}`");
    let no_token = |what: &str| format!("refused: {what}, and there is none");
    let asked = "a token is needed to ask GitHub which commits may be applied";
    let late = "aaaaaaa is no longer on `main`: its history was rewritten since the push";
    let wrong = "refs/heads/refs/heads/main";
    // event, caller, before GitHub is asked, its answer (whether it contains the event's commit), without a
    // token
    #[rustfmt::skip]
    let rows: Vec<(JobEvent, Caller<'_>, &str, bool, String, String)> = vec![
        (own("main"), on("refs/pull/7/merge"), "ask", true, "preview, Proposed, power of f".into(), "preview, Own, no power".into()),
        (own("release"), on("refs/pull/7/merge"), "ask", true, "preview into release, Own, power of f".into(), "preview into release, Own, no power".into()),
        (fork("main"), on("refs/pull/7/merge"), "preview, Untrusted, no power", true, String::new(), String::new()),
        (fork("release"), on("refs/pull/7/merge"), "preview into release, Untrusted, no power", true, String::new(), String::new()),
        (bot, caller("dependabot[bot]", 1, "", None, "refs/pull/7/merge"), "preview, Untrusted, no power", true, String::new(), String::new()),
        (closed, on(main), "nothing: the pull request is closed: nothing to preview", true, String::new(), String::new()),
        (queue("main"), on("refs/heads/gh-readonly-queue/main/pr-7"), "ask", true, "queue, Own, power of f".into(), "queue, Own, no power".into()),
        (queue("release"), on("refs/heads/gh-readonly-queue/release/pr-7"), "ask", true, "queue into release, Own, power of f".into(), "queue into release, Own, no power".into()),
        (workflow_run("pull_request", true, false), on(main), "ask", true, "outside, Recorded, power of f".into(), no_token("a token is needed to post the preview of a pull request from outside")),
        (workflow_run("pull_request", false, true), on(main), "ask", true, "outside, Recorded, power of f".into(), no_token("a token is needed to post the preview of a pull request from outside")),
        (workflow_run("pull_request", true, false), on(topic), "ask", true, refused(topic), no_token("a token is needed to post the preview of a pull request from outside")),
        (workflow_run("pull_request", false, false), on(main), "nothing: the workflow run is not of a fork's pull request, nor of Dependabot's: nothing to do", true, String::new(), String::new()),
        (workflow_run("push", true, false), on(main), "nothing: the workflow run is not of a fork's pull request, nor of Dependabot's: nothing to do", true, String::new(), String::new()),
        (pushed(main), on(main), "ask", true, "apply a (0 agreed by environment), Merged, power of f, pushed".into(), no_token(asked)),
        (pushed(main), caller("bob", 2, "", None, main), "ask", true, "apply a (0 agreed by environment), Merged, power of f".into(), no_token(asked)),
        (pushed(main), on(main), "ask", false, format!("refused: {late}"), no_token(asked)),
        (pushed(main), caller("bob", 1, DIGEST, Some("gate"), main), "ask", true, "apply a (1 agreed by environment), Merged, power of f, pushed".into(), no_token(asked)),
        (pushed(main), caller("bob", 1, DIGEST, None, main), "refused: the environment of this job is unknown, so these digests are not approved", true, String::new(), String::new()),
        (pushed(main), caller("bob", 2, DIGEST, Some("gate"), main), "refused: the run was restarted: the reviewers of its environment may have approved other digests", true, String::new(), String::new()),
        (pushed(topic), on(topic), "nothing: a push to `refs/heads/topic`: only `main` is applied", true, String::new(), String::new()),
        (pushed(tag), on(tag), "nothing: a push to `refs/tags/main`: only `main` is applied", true, String::new(), String::new()),
        (pushed(wrong), on(wrong), "nothing: a push to `refs/heads/refs/heads/main`: only `main` is applied", true, String::new(), String::new()),
        (gone, on(main), "refused: the default branch was deleted: nothing is applied", true, String::new(), String::new()),
        (clock.clone(), on(main), "ask", true, "drift f, Merged, power of f".into(), no_token("a token is needed to ask GitHub which commit is applied")),
        (clock.clone(), caller("bob", 1, DIGEST, Some("gate"), main), "ask", true, "restore 1, Merged, power of f".into(), no_token("a token is needed to ask GitHub which commit is applied")),
        (clock.clone(), caller("bob", 1, DIGEST, Some("gate"), topic), "ask", true, refused(topic), no_token("a token is needed to ask GitHub which commit is applied")),
        (clock.clone(), caller("bob", 1, DIGEST, None, main), "refused: the environment of this job is unknown, so these digests are not approved", true, String::new(), String::new()),
        (clock.clone(), caller("bob", 2, DIGEST, Some("gate"), main), "refused: the run was restarted: the reviewers of its environment may have approved other digests", true, String::new(), String::new()),
        (clock.clone(), scheduled(on(main)), "ask", true, "apply f (0 agreed by ada), Merged, power of f".into(), no_token(asked)),
        (clock.clone(), scheduled(caller("bob", 2, DIGEST, None, main)), "ask", true, "apply f (0 agreed by ada), Merged, power of f".into(), no_token(asked)),
        (clock.clone(), scheduled(on(topic)), "ask", true, refused(topic), no_token(asked)),
        (dispatch(main, ""), scheduled(on(main)), "ask", true, "drift f, Merged, power of f".into(), no_token("a token is needed to ask GitHub which commit is applied")),
        (clock, on(topic), "ask", true, refused(topic), no_token("a token is needed to ask GitHub which commit is applied")),
        (dispatch(main, ""), on(main), "ask", true, "drift f, Merged, power of f".into(), no_token("a token is needed to ask GitHub which commit is applied")),
        (dispatch(main, DIGEST), on(main), "ask", true, "apply f (1 agreed by ada), Merged, power of f".into(), no_token(asked)),
        (dispatch(main, DIGEST), caller("eve", 2, "", None, main), "ask", true, "apply f (1 agreed by ada), Merged, power of f".into(), no_token(asked)),
        (dispatch(topic, DIGEST), on(topic), "ask", true, refused(topic), no_token(asked)),
        (dispatch(tag, DIGEST), on(tag), "ask", true, refused(tag), no_token(asked)),
        (dispatch("main", DIGEST), on(tag), "ask", true, refused("main"), no_token(asked)),
        (dispatch(main, DIGEST), on(tag), "ask", true, refused(tag), no_token(asked)),
        (dispatch(wrong, DIGEST), on(wrong), "ask", true, refused(wrong), no_token(asked)),
        (dispatch(topic, ""), on(topic), "ask", true, refused(topic), no_token("a token is needed to ask GitHub which commit is applied")),
        (call("konverge-apply", DIGEST), on(main), "ask", true, "apply f (1 agreed by ada), Merged, power of f".into(), no_token(asked)),
        (call("konverge-continue", DIGEST), on(main), "ask", true, "apply f (0 agreed by ada), Merged, power of f".into(), no_token(asked)),
        (call("konverge-apply", ""), on(topic), "ask", true, refused(topic), no_token(asked)),
        (dispatch(main, ""), caller("bob", 1, DIGEST, Some("gate"), main), "ask", true, "restore 1, Merged, power of f".into(), no_token("a token is needed to ask GitHub which commit is applied")),
        (call("konverge-drift", ""), caller("bob", 1, DIGEST, Some("gate"), main), "ask", true, "restore 1, Merged, power of f".into(), no_token("a token is needed to ask GitHub which commit is applied")),
        (call("konverge-drift", ""), on(main), "ask", true, "drift f, Merged, power of f".into(), no_token("a token is needed to ask GitHub which commit is applied")),
        (call("on-demand", ""), on(main), "refused: unknown repository_dispatch event `on-demand`", true, String::new(), String::new()),
    ];
    let answer = main_branch();
    for (at, (event, caller, first, holds, answered, never)) in rows.iter().enumerate() {
        let row = format!("row {at}: {event:?}");
        assert_eq!(said(Authority::decide(event, *caller)), *first, "{row}");
        if *first == "ask" {
            let answer = BranchAnswer {
                holds: *holds,
                ..answer.clone()
            };
            assert_eq!(told(event, *caller, Some(answer)), *answered, "{row}");
            assert_eq!(told(event, *caller, None), *never, "{row}");
        }
    }
}

/// The default branch is what GitHub says now, whatever the event of a re-run says.
#[tokio::test]
async fn an_event_s_word_for_the_default_branch_grants_nothing() {
    let mut now = main_branch();
    now.upstream.branch.name = "trunk".to_owned();
    let on_main = caller("bob", 1, "", None, "refs/heads/main");
    for event in [
        JobEvent::Push(push("refs/heads/main")),
        dispatch("refs/heads/main", DIGEST),
        dispatch("refs/heads/main", ""),
        call("konverge-apply", DIGEST),
    ] {
        assert_eq!(
            told(&event, on_main, Some(now.clone())),
            "refused: the workflow was started on `refs/heads/main`",
            "{event:?}"
        );
    }
    let event = JobEvent::PullRequest(pull_request("main", false));
    let told = told(&event, on_main, Some(now));
    assert_eq!(told, "preview into main, Own, power of f");
}

#[test]
fn who_is_trusted_less_may_not_more() {
    let rows: Vec<_> = [
        Trust::Merged,
        Trust::Proposed,
        Trust::Own,
        Trust::Recorded,
        Trust::Untrusted,
    ]
    .into_iter()
    .map(|trust| {
        let Grants {
            clusters,
            store,
            packages,
            caches,
            publishes,
            people,
        } = trust.grants();
        (
            trust,
            [clusters, store, packages, caches, publishes, people].map(u8::from),
        )
    })
    .collect();
    assert_eq!(
        rows,
        [
            (Trust::Merged, [1, 1, 1, 1, 1, 1]),
            (Trust::Proposed, [1, 1, 1, 1, 1, 1]),
            (Trust::Own, [0, 0, 1, 0, 1, 1]),
            (Trust::Recorded, [0, 1, 0, 0, 1, 0]),
            (Trust::Untrusted, [0, 0, 0, 0, 0, 0]),
        ]
    );
    for (trust, _) in rows {
        let less = trust.without_trusted_config().grants();
        assert!(!less.clusters && !less.store && !less.caches, "{trust:?}");
    }
}

/// `for-environment` opens the stacks of one environment, in applies and restores alone.
#[tokio::test]
async fn an_environment_limits_applies_and_restores_alone() {
    let main = "refs/heads/main";
    let answer = main_branch();
    let limited = |event: &JobEvent, approve: &'static str, environment: Option<&'static str>| {
        let caller = Caller {
            for_environment: Some("dev"),
            ..caller("bob", 1, approve, environment, main)
        };
        let decided = decide(event, caller, Some(answer.clone()));
        decided.map_or_else(|said| said, |authority| authority.environment.unwrap_or_default())
    };
    let clock = JobEvent::Schedule {
        cron: "17 5 * * *".to_owned(),
    };
    let pushed = JobEvent::Push(push(main));
    for environment in [None, Some("dev")] {
        assert_eq!(limited(&pushed, "", environment), "dev");
    }
    assert_eq!(limited(&dispatch(main, DIGEST), "", None), "dev");
    assert_eq!(limited(&call("konverge-apply", DIGEST), "", None), "dev");
    assert_eq!(limited(&clock, DIGEST, Some("dev")), "dev", "a restore");
    let other = limited(&pushed, "", Some("production"));
    assert!(other.contains("in the environment `production`"), "{other}");
    for event in [
        JobEvent::PullRequest(pull_request("main", false)),
        JobEvent::PullRequest(pull_request("main", true)),
        queue("main"),
        workflow_run("pull_request", true, false),
        clock,
    ] {
        let refused = limited(&event, "", None);
        assert!(refused.contains("limits an apply"), "{event:?}: {refused}");
    }
}

/// What the comment says that a merge does.
#[tokio::test]
async fn a_merge_applies_only_what_is_proposed_into_the_default_branch() {
    let is = Some(main_branch());
    let pull = |base, outside| JobEvent::PullRequest(pull_request(base, outside));
    for (event, answer, merging) in [
        (pull("main", false), &is, Merging::Applies),
        (pull("release", false), &is, Merging::OtherBranch),
        (pull("main", false), &None, Merging::Unreviewed),
        (pull("main", true), &None, Merging::Outside),
        (pull("release", true), &None, Merging::Outside),
        (workflow_run("pull_request", true, false), &is, Merging::Outside),
        (queue("main"), &is, Merging::Unreviewed),
        (queue("release"), &is, Merging::OtherBranch),
        (JobEvent::Push(push("refs/heads/main")), &is, Merging::Applies),
    ] {
        let caller = caller("bob", 1, "", None, "refs/heads/main");
        let authority = decide(&event, caller, answer.clone()).unwrap();
        assert_eq!(authority.merging(), merging, "{event:?}");
    }
}

/// GitHub is asked whether the default branch has the commit of a push, and of nothing else.
#[test]
fn only_the_commit_of_a_push_must_be_on_the_branch() {
    let pushed = JobEvent::Push(push("refs/heads/main"));
    assert_eq!(Authority::commit_of(&pushed), Some(&commit('a')));
    let gone = JobEvent::Push(PushEvent {
        after: None,
        ..push("refs/heads/main")
    });
    for event in [
        gone,
        JobEvent::PullRequest(pull_request("main", false)),
        queue("main"),
        dispatch("refs/heads/main", DIGEST),
        workflow_run("pull_request", true, false),
    ] {
        assert_eq!(Authority::commit_of(&event), None, "{event:?}");
    }
}
