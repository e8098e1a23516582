//! Events: GitHub's own example payloads, and what they lack (forks, merges, schedules) derived from them.

use std::{collections::HashMap, fs};

use konverge_actions::{Dialect, Runner};
use konverge_base::{
    error::UserError,
    model::check_run::{Annotation, Level},
};
use konverge_forge::{CiJob as _, JobEvent};
use serde_json::{Value, json};

use crate::support::octokit::webhooks;

fn env(event: &str) -> HashMap<String, String> {
    [
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_EVENT_NAME", event),
        ("GITHUB_EVENT_PATH", "/nowhere/event.json"),
        ("GITHUB_REPOSITORY", "Codertocat/Hello-World"),
        ("GITHUB_SHA", "1111111111111111111111111111111111111111"),
        ("GITHUB_REF", "refs/pull/2/merge"),
        ("GITHUB_RUN_ID", "4711"),
        ("GITHUB_RUN_ATTEMPT", "2"),
        ("GITHUB_ACTOR", "octocat"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .collect()
}

fn runner(event: &str) -> Runner {
    Runner::from_env(&env(event), Dialect::Github).unwrap()
}

fn read(event: &str, payload: &Value) -> Result<JobEvent, UserError> {
    runner(event).parse_event(event, payload).map_err(UserError::from)
}

fn pull_request(edit: impl FnOnce(&mut Value)) -> konverge_forge::PullRequestEvent {
    let mut payload = webhooks("pull_request")
        .into_iter()
        .find(|p| p["action"] == "opened")
        .unwrap();
    payload["pull_request"]["head"]["repo"]["full_name"] = json!("Codertocat/Hello-World");
    edit(&mut payload);
    match read("pull_request", &payload).unwrap() {
        JobEvent::PullRequest(event) => event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_example_of_github_is_read() {
    for event in [
        "pull_request",
        "push",
        "merge_group",
        "workflow_run",
        "workflow_dispatch",
        "repository_dispatch",
    ] {
        let payloads = webhooks(event);
        assert!(!payloads.is_empty());
        for payload in payloads {
            if let Err(failure) = read(event, &payload) {
                panic!("{event}: {failure:?}\n{payload}");
            }
        }
    }
    assert!(
        matches!(read("schedule", &json!({"schedule": "17 3 * * *"})), Ok(JobEvent::Schedule { cron }) if cron == "17 3 * * *")
    );
}

#[test]
fn a_pull_request_of_this_repository() {
    let event = pull_request(|_| {});
    assert!(!event.from_fork && !event.dependabot && !event.merged);
    assert_eq!(
        event.merge_commit.unwrap().as_str(),
        "1".repeat(40),
        "the trial merge that the runner checked out"
    );
    assert_ne!(event.base, event.head);
    assert_eq!(event.action, "opened");
}

#[test]
fn a_forks_pull_request_has_no_power() {
    for repository in [json!({"full_name": "mallory/Hello-World"}), Value::Null] {
        let event = pull_request(|p| p["pull_request"]["head"]["repo"] = repository);
        assert!(event.from_fork);
        assert!(!JobEvent::PullRequest(event).is_privileged());
    }
    assert!(JobEvent::PullRequest(pull_request(|_| {})).is_privileged());
}

#[test]
fn a_merged_one_has_no_trial_merge() {
    let event = pull_request(|p| {
        p["action"] = json!("closed");
        p["pull_request"]["merged"] = json!(true);
    });
    assert!(event.merged && event.merge_commit.is_none());
}

#[test]
fn pushes_new_forced_and_deleted() {
    let example = webhooks("push")
        .into_iter()
        .find(|p| p["ref"].as_str().unwrap().starts_with("refs/heads/"));
    let mut payload = example.unwrap_or_else(|| webhooks("push").remove(0));
    payload["ref"] = json!("refs/heads/main");
    payload["repository"]["default_branch"] = json!("main");
    payload["before"] = json!("0".repeat(40));
    payload["after"] = json!("a".repeat(40));
    payload["forced"] = json!(true);
    let JobEvent::Push(push) = read("push", &payload).unwrap() else {
        panic!("a push")
    };
    assert!(push.is_default_branch() && push.forced && push.before.is_none());
    assert_eq!(push.after.unwrap().as_str(), "a".repeat(40));
    payload["ref"] = json!("refs/heads/topic/main");
    payload["after"] = json!("0".repeat(40));
    let JobEvent::Push(push) = read("push", &payload).unwrap() else {
        panic!("a push")
    };
    assert!(!push.is_default_branch() && push.after.is_none());
}

#[test]
fn a_merge_queues_group() {
    let mut payload = webhooks("merge_group").remove(0);
    let sha = "b".repeat(40);
    payload["merge_group"]["head_ref"] =
        json!(format!("refs/heads/gh-readonly-queue/release/pr-1/pr-104-{sha}"));
    payload["merge_group"]["base_ref"] = json!("refs/heads/release/pr-1");
    let JobEvent::MergeGroup {
        base_branch,
        pull_request,
        ..
    } = read("merge_group", &payload).unwrap()
    else {
        panic!("a group")
    };
    assert_eq!((base_branch.as_str(), pull_request), ("release/pr-1", Some(104)));
}

#[test]
fn another_workflows_end() {
    let mut payload = webhooks("workflow_run").remove(0);
    payload["workflow_run"]["head_repository"]["full_name"] = json!("mallory/Hello-World");
    payload["workflow_run"]["head_sha"] = json!("c".repeat(40));
    let event = read("workflow_run", &payload).unwrap();
    let JobEvent::WorkflowRun(run) = &event else {
        panic!("a run")
    };
    assert!(run.from_fork);
    let refused = |common: &str| run.refuse_checkout_on(&common.repeat(40).parse().unwrap());
    let failure = UserError::from(refused("c").unwrap_err());
    assert!(
        failure.message.contains("a commit from a fork") && !failure.hints.is_empty(),
        "{failure:?}"
    );
    assert!(refused("d").is_ok());
}

#[test]
fn what_is_dangerous_or_unknown_is_refused_with_the_way_out() {
    let payload = webhooks("pull_request").remove(0);
    let failure = read("pull_request_target", &payload).unwrap_err();
    assert!(
        failure.message.contains("code from outside") && failure.hints[0].contains("pull_request"),
        "{failure:?}"
    );
    let failure = read("issue_comment", &json!({})).unwrap_err();
    assert!(failure.hints[0].contains("workflow_dispatch"), "{failure:?}");
    let failure = read(
        "push",
        &json!({"ref": "refs/heads/main", "before": "x; rm -rf /", "after": "y"}),
    )
    .unwrap_err();
    assert!(failure.message.contains("`before`"), "{failure:?}");
}

#[test]
fn inputs_given_by_hand() {
    let mut payload = webhooks("workflow_dispatch").remove(0);
    payload["inputs"] = json!({"approve": "abc", "all": true, "none": null});
    payload["ref"] = json!("refs/heads/main");
    let JobEvent::WorkflowDispatch { inputs, ref_name, .. } = read("workflow_dispatch", &payload).unwrap()
    else {
        panic!("a dispatch")
    };
    assert_eq!(
        (
            inputs["approve"].as_str(),
            inputs["all"].as_str(),
            inputs["none"].as_str()
        ),
        ("abc", "true", "")
    );
    assert_eq!(ref_name, "refs/heads/main");
}

#[test]
fn the_runners_environment() {
    let here = runner("push");
    assert_eq!(
        here.run_url(),
        "https://github.com/Codertocat/Hello-World/actions/runs/4711"
    );
    assert_eq!(here.info().run_attempt, 2);
    for (name, value) in [
        ("GITHUB_REPOSITORY", "a/b/../c"),
        ("GITHUB_REPOSITORY", "a"),
        ("GITHUB_SHA", "HEAD"),
        ("GITHUB_RUN_ID", "x"),
        ("GITHUB_REF", ""),
    ] {
        let mut broken = env("push");
        broken.insert(name.to_owned(), value.to_owned());
        let failure = UserError::from(Runner::from_env(&broken, Dialect::Github).unwrap_err());
        assert!(
            failure.message.contains(name) && !failure.hints.is_empty(),
            "{failure:?}"
        );
    }
}

#[test]
fn a_later_run_is_told_by_its_page() {
    let runner = runner("push");
    let pages = "https://github.com/Codertocat/Hello-World/actions/runs";
    for (page, later) in [
        (format!("{pages}/4712"), true),
        (format!("{pages}/4712/job/1"), true),
        (format!("{pages}/4712/attempts/1"), true),
        (format!("{pages}/4711"), false),
        (format!("{pages}/4711/attempts/1"), false),
        (format!("{pages}/4711/attempts/2"), false),
        (format!("{pages}/4711/attempts/3"), true),
        (format!("{pages}/4711/attempts/x"), false),
        (format!("{pages}/4710/attempts/9"), false),
        (format!("{pages}/999"), false),
        (format!("{pages}/x"), false),
        (
            "https://github.com/mallory/Hello-World/actions/runs/4712".to_owned(),
            false,
        ),
        (String::new(), false),
    ] {
        assert_eq!(runner.is_later_page(&page), later, "{page}");
    }
}

#[test]
fn outputs_and_summary_are_appended_and_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut variables = env("push");
    for (name, file) in [("GITHUB_OUTPUT", "output"), ("GITHUB_STEP_SUMMARY", "summary")] {
        variables.insert(name.to_owned(), folder.path().join(file).display().to_string());
    }
    let runner = Runner::from_env(&variables, Dialect::Github).unwrap();
    runner
        .set_outputs(&[("stack-count", "2".to_owned()), ("evil", "a\nb=c".to_owned())])
        .unwrap();
    runner.set_outputs(&[("has-changes", "true".to_owned())]).unwrap();
    let text = fs::read_to_string(folder.path().join("output")).unwrap();
    assert_eq!(
        outputs(&text),
        [("stack-count", "2"), ("evil", "a\nb=c"), ("has-changes", "true")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
    );
    runner.add_summary(&"x".repeat(900 * 1024)).unwrap();
    runner.add_summary(&"y".repeat(900 * 1024)).unwrap();
    runner.add_summary("z").unwrap();
    let summary = fs::read_to_string(folder.path().join("summary")).unwrap();
    assert!(
        summary.len() < 1_048_576 && summary.contains("Not shown") && !summary.contains("yy"),
        "{}",
        summary.len()
    );
}

/// The file as the runner reads it (`FileCommandManager` of actions/runner).
fn outputs(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = text.split('\n');
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let (name, delimiter) = line.split_once("<<").expect("a heredoc");
        let value: Vec<_> = lines.by_ref().take_while(|line| *line != delimiter).collect();
        found.push((name.to_owned(), value.join("\n")));
    }
    found
}

#[test]
fn annotations_of_hostile_files() {
    let note = Annotation {
        level: Level::Error,
        file: "a\n::add-mask::b,line=1:.k".into(),
        line: Some(1),
        column: None,
        title: "t\r\n::error::x".into(),
        message: "m\n##[command]y".into(),
    };
    for line in konverge_actions::workflow_commands::annotations(&[note]) {
        assert_eq!(line.lines().count(), 1);
        assert!(line.starts_with("::error ") && !line.contains("##["));
        assert_eq!(line.matches(",line=").count(), 1, "{line}");
    }
}
