use super::*;
use crate::PipelineJob;
use konverge_forge::CiJob as _;

fn sha(digit: char) -> String {
    digit.to_string().repeat(40)
}

fn set(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    let variables = variables.iter();
    variables
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// As GitLab sets them for a push to the default branch.
pub(crate) fn pushed() -> BTreeMap<String, String> {
    set(&[
        ("GITLAB_CI", "true"),
        ("CI_PIPELINE_SOURCE", "push"),
        ("CI_PROJECT_PATH", "acme/platform/konfig"),
        ("CI_PROJECT_ID", "7"),
        ("CI_SERVER_URL", "https://acme.example/git"),
        ("CI_PIPELINE_ID", "42"),
        ("CI_JOB_ID", "4300"),
        ("CI_COMMIT_SHA", &sha('a')),
        ("CI_COMMIT_BEFORE_SHA", &sha('b')),
        ("CI_COMMIT_BRANCH", "main"),
        ("CI_DEFAULT_BRANCH", "main"),
        ("GITLAB_USER_LOGIN", "ada"),
    ])
}

/// As GitLab sets them for a merge request.
fn proposed(kind: &str) -> BTreeMap<String, String> {
    let mut env = pushed();
    env.remove("CI_COMMIT_BRANCH");
    env.extend(set(&[
        ("CI_PIPELINE_SOURCE", "merge_request_event"),
        ("CI_COMMIT_BEFORE_SHA", ZERO),
        ("CI_MERGE_REQUEST_IID", "12"),
        ("CI_MERGE_REQUEST_EVENT_TYPE", kind),
        ("CI_MERGE_REQUEST_PROJECT_ID", "7"),
        ("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "7"),
        ("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "topic"),
        ("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main"),
        ("CI_MERGE_REQUEST_DIFF_BASE_SHA", &sha('d')),
    ]));
    if kind != "detached" {
        env.extend(set(&[
            ("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", &sha('e')),
            ("CI_MERGE_REQUEST_TARGET_BRANCH_SHA", &sha('f')),
        ]));
    }
    env
}

fn event(env: &BTreeMap<String, String>) -> Result<JobEvent, ForgeError> {
    PipelineJob::from_env(env).unwrap().event()
}

fn with(mut env: BTreeMap<String, String>, name: &str, value: &str) -> BTreeMap<String, String> {
    env.insert(name.to_owned(), value.to_owned());
    env
}

fn pull_request(env: &BTreeMap<String, String>) -> PullRequestEvent {
    match event(env).unwrap() {
        JobEvent::PullRequest(event) => event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_head_of_a_merge_request_is_never_the_commit_of_its_merge() {
    let of = |kind| {
        let event = pull_request(&proposed(kind));
        let merge = event.merge_commit.as_ref().map(ToString::to_string);
        (event.head.to_string(), event.base.to_string(), merge)
    };
    assert_eq!(of("detached"), (sha('a'), sha('d'), None));
    assert_eq!(of("merged_result"), (sha('e'), sha('f'), Some(sha('a'))));
    let train = event(&proposed("merge_train")).unwrap();
    assert!(
        matches!(&train, JobEvent::MergeGroup { base, head, pull_request: Some(12), .. }
            if base.to_string() == sha('f') && head.to_string() == sha('a')),
        "{train:?}"
    );
    assert!(event(&proposed("something new")).is_err());
}

#[test]
fn a_fork_s_merge_request_is_one_wherever_its_pipeline_runs() {
    assert!(!pull_request(&proposed("detached")).from_fork);
    // A member of the project has started it here.
    let here = with(proposed("detached"), "CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "99");
    assert!(pull_request(&here).from_fork);
    let there = with(here, "CI_PROJECT_ID", "99");
    assert!(pull_request(&there).from_fork);
    assert!(!event(&there).unwrap().is_privileged());
    // A source that nobody names is not this project.
    let mut deleted = proposed("detached");
    deleted.remove("CI_MERGE_REQUEST_SOURCE_PROJECT_ID");
    assert!(event(&deleted).is_err());
}

#[test]
fn a_tag_is_no_branch_and_a_new_branch_has_no_commit_before() {
    let JobEvent::Push(push) = event(&pushed()).unwrap() else {
        panic!()
    };
    assert!(push.is_default_branch());
    assert_eq!(push.before.map(|sha| sha.to_string()), Some(sha('b')));
    let mut tag = with(pushed(), "CI_COMMIT_TAG", "main");
    tag.remove("CI_COMMIT_BRANCH");
    let tag = with(tag, "CI_COMMIT_BEFORE_SHA", ZERO);
    let JobEvent::Push(push) = event(&tag).unwrap() else {
        panic!()
    };
    assert!(!push.is_default_branch());
    assert_eq!(push.before, None);
}

#[test]
fn digests_are_those_of_a_pipeline_that_somebody_started() {
    let typed = with(pushed(), "KONVERGE_APPROVE", "sha256:abc");
    for source in ["web", "api", "trigger"] {
        let JobEvent::WorkflowDispatch { inputs, ref_name, .. } =
            event(&with(typed.clone(), "CI_PIPELINE_SOURCE", source)).unwrap()
        else {
            panic!()
        };
        assert_eq!(
            (inputs["approve"].as_str(), ref_name.as_str()),
            ("sha256:abc", "refs/heads/main")
        );
    }
    let scheduled = with(typed, "CI_PIPELINE_SOURCE", "schedule");
    assert!(matches!(event(&scheduled).unwrap(), JobEvent::Schedule { .. }));
    for other in [
        "pipeline",
        "parent_pipeline",
        "external_pull_request_event",
        "chat",
    ] {
        let said = event(&with(pushed(), "CI_PIPELINE_SOURCE", other)).unwrap_err();
        assert!(said.to_string().contains(other), "{said}");
    }
}
