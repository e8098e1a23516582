//! Power comes from the default branch's tip, for every event, and a question that decides a permission fails closed.
//! Each test has a folder as store, a real API server behind, and looks at what was touched.

use konverge_state::ReviewKey;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    github::Act,
    payloads,
};

fn let_go_on(login: &str, environment: &str) -> Value {
    json!({"state": "approved", "comment": "", "environments": [{"id": 1, "name": environment}], "user": {"login": login}})
}

/// Who starts the next runs.
fn by(stage: &mut Stage, login: &str) {
    stage.env.retain(|(name, _)| *name != "GITHUB_ACTOR");
    stage.env.push(("GITHUB_ACTOR", login.to_owned()));
}

async fn stopped(stage: &Stage, ran: &Ran, map: &str, words: &str) {
    ran.outcome.check(3);
    assert_eq!(stage.value(map).await, None, "{map} was touched");
    let said = ran.outcome.stdout.clone() + &ran.outcome.stderr;
    assert!(said.contains(words), "{words}: {said}");
}

/// The workflow is started by hand on a branch that has taken the policy out and names a store of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_dispatch_takes_no_power_from_the_branch_or_tag_it_is_started_on() {
    let mut stage = Stage::small("policy: {approvals: 1}\n").await;
    let evil = stage.scratch.path().join("evil");
    std::fs::create_dir_all(&evil).unwrap();
    stage.monorepo.branch("loose");
    stage.configure("");
    let config = stage.monorepo.read("konverge.yaml");
    let store = stage.scratch.path().join("store").display().to_string();
    stage.monorepo.write(
        "konverge.yaml",
        config.replace(&store, &evil.display().to_string()),
    );
    stage.stack("loose/dev", &[("power-loose", "one")]);
    let head = stage.monorepo.commit("No policy");
    stage.monorepo.git(["tag", "main", &head]);
    let digest = "a".repeat(64);
    let dispatch = |full_ref: &str| {
        let mut payload = payloads::workflow_dispatch("x", json!({"approve": digest}));
        payload["ref"] = json!(full_ref);
        payload
    };
    let of_the_tag = "refs/tags/main";
    for (named, started) in [
        ("refs/heads/loose", "refs/heads/loose"),
        (of_the_tag, of_the_tag),
        ("refs/heads/main", of_the_tag),
        ("main", of_the_tag),
        ("refs/heads/refs/heads/main", "refs/heads/refs/heads/main"),
    ] {
        let ran = stage.ci("workflow_dispatch", &dispatch(named), &head, started);
        stopped(&stage, &ran, "power-loose", "the workflow was started on `").await;
    }
    // Whatever the event says of its commit, the default branch's head is applied, under its own configuration.
    let main = "refs/heads/main";
    let ran = stage.ci("workflow_dispatch", &dispatch(main), &head, main);
    // The digest that somebody typed stands for nothing there.
    ran.outcome.check(3);
    assert!(ran.outcome.stdout.contains("0 stacks"), "{}", ran.outcome.stdout);
    let payload = payloads::repository_dispatch("konverge-apply", json!({}));
    let called = stage.ci("repository_dispatch", &payload, &head, main);
    called.outcome.check(0);
    let looked = stage.ci("schedule", &payloads::schedule(), &head, main);
    looked.outcome.check(0);
    assert_eq!(stage.value("power-loose").await, None);
    assert_eq!(
        std::fs::read_dir(&evil).unwrap().count(),
        0,
        "its store was opened"
    );
    let asked = stage.github.requests();
    assert!(
        asked
            .iter()
            .any(|request| request.path.ends_with("/branches/main"))
    );
}

/// A run that is started again reads what grants power from the branch as it is now, and applies nothing that was taken
/// off it.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_started_again_has_today_s_rules() {
    let mut stage = Stage::small("").await;
    stage
        .github
        .world(|world| world.collaborators.insert("dev".into(), "write"));
    stage.reviewed(7, "first", |stage| {
        stage.stack("again/dev", &[("power-again", "one")])
    });
    let (before, after) = stage.press_merge(7, "first");
    stage.monorepo.checkout("main");
    stage.configure("policy: {approvals: 1}\n");
    stage.monorepo.commit("A rule");
    let payload = payloads::push("main", &before, &after, false);
    let ran = stage.ci("push", &payload, &after, "refs/heads/main");
    stopped(&stage, &ran, "power-again", "policy.approvals: 0 of 1").await;
    // Its history is rewritten: the commit is none of the branch's any more.
    stage
        .monorepo
        .checkout("main")
        .git(["reset", "--quiet", "--hard", &before]);
    stage.monorepo.commit("Another");
    let ran = stage.ci("push", &payload, &after, "refs/heads/main");
    stopped(&stage, &ran, "power-again", "is no longer on `main`").await;
}

/// The proposal takes out the rule that it should satisfy.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_removes_its_own_guardrail_is_shown_and_held_by_it() {
    let strict = "policy: {approvals: 1, max_destructive: 3}\nstacks: [{match: 'rail/prod', policy: {reviewers: [grace]}}]\n";
    let mut stage = Stage::small(strict).await;
    let (head, _) = stage.reviewed(7, "loosen", |stage| {
        stage.configure("policy: {max_destructive: 99}\n");
        stage.stack("rail/dev", &[("power-rail", "one")]);
        stage.stack("rail/prod", &[("power-rail-prod", "one")]);
    });
    let comment = stage.comments()[0].1.clone();
    for row in [
        "| `policy.approvals` | `1` | not set | all |",
        "| `policy.max_destructive` | `3` | `99` | all |",
        "3 settings of `konverge.yaml` that grant permissions",
        "| `stacks[].policy.reviewers` | `[\"grace\"]` | not set | `rail/prod` |",
    ] {
        assert!(comment.contains(row), "{row}: {comment}");
    }
    let merged = stage.merge(7, "loosen");
    stopped(&stage, &merged, "power-rail", "policy.approvals: 0 of 1").await;
    // The one rule, and the other that is for one stack.
    stage.approved_by(7, "bob", &head);
    let again = stage.again();
    again.outcome.check(3);
    assert_eq!(stage.value("power-rail").await.as_deref(), Some("one"));
    assert_eq!(stage.value("power-rail-prod").await, None);
    let said = &again.outcome.stdout;
    assert!(said.contains("policy.reviewers: one of grace"), "{said}");
    stage.approved_by(7, "grace", &head);
    stage.again().outcome.check(0);
    assert_eq!(stage.value("power-rail-prod").await.as_deref(), Some("one"));
    // What is proposed under the new policy is judged by that.
    stage.reviewed(8, "next", |stage| {
        stage.stack("rail/dev", &[("power-rail", "two")])
    });
    assert!(!stage.comments().pop().unwrap().1.contains("This merge changes"));
    stage.merge(8, "next").outcome.check(0);
    assert_eq!(stage.value("power-rail").await.as_deref(), Some("two"));
}

/// A push and a dispatch by the same person are one person, whatever the push did to the policy.
#[tokio::test(flavor = "multi_thread")]
async fn who_made_or_pushed_a_change_does_not_agree_to_it() {
    let mut stage = Stage::small("policy: {approvals: 1}\n").await;
    stage.github.world(|world| {
        for login in ["dev", "eve", "bob", "grace"] {
            world.collaborators.insert(login.into(), "write");
        }
    });
    let pushed = stage.straight_to_main(|stage| stage.stack("self/dev", &[("power-self", "one")]));
    let digest = pushed.digest();
    let own = "policy.approvals: 0 of 1 required approvals of the last head are given; dev wrote or pushed a commit of the change";
    let agreed = stage.approve(&digest);
    stopped(&stage, &agreed, "power-self", own).await;
    // Somebody else only starts their run again: they typed no digest.
    stage.env = vec![
        ("GITHUB_TRIGGERING_ACTOR", "bob".to_owned()),
        ("GITHUB_RUN_ATTEMPT", "2".to_owned()),
    ];
    let rerun = stage.approve(&digest);
    stopped(&stage, &rerun, "power-self", own).await;
    // Nor does the pusher's word as a reviewer of the environment.
    stage.env = vec![("KONVERGE_ENVIRONMENT", "production".to_owned())];
    stage
        .github
        .world(|world| world.run_approvals = vec![let_go_on("dev", "production")]);
    let agreed = stage.approve(&digest);
    stopped(&stage, &agreed, "power-self", own).await;

    // Written by one, named in it another, pushed by a third; the policy is taken out on the way.
    stage.env.clear();
    stage.monorepo.checkout("main");
    let before = stage.monorepo.rev("main");
    stage.configure("");
    stage.stack("self/dev", &[("power-self", "two")]);
    stage.monorepo.git(["add", "--all"]);
    stage.monorepo.git([
        "commit",
        "--quiet",
        "--author=Eve <7+eve@users.noreply.github.com>",
        "--message=Two\n\nCo-authored-by: Bob <bob@users.noreply.github.com>",
    ]);
    let after = stage.monorepo.rev("main");
    let pushed = stage.push(&before, &after);
    let digest = pushed.digest();
    for login in ["dev", "eve", "bob"] {
        by(&mut stage, login);
        let agreed = stage.approve(&digest);
        stopped(
            &stage,
            &agreed,
            "power-self",
            &format!("{login} wrote or pushed a commit of the change"),
        )
        .await;
    }
    by(&mut stage, "grace");
    stage.approve(&digest).outcome.check(0);
    assert_eq!(stage.value("power-self").await.as_deref(), Some("two"));
    assert_eq!(stage.receipt("self/dev")["agreedBy"], json!(["grace"]));
}

/// Who pushed to somebody else's branch has approved their own.
#[tokio::test(flavor = "multi_thread")]
async fn who_pushed_to_a_pull_request_does_not_approve_it() {
    let mut stage = Stage::small("policy: {approvals: 1}\n").await;
    let (head, _) = stage.reviewed(7, "shared", |stage| {
        stage.stack("branch/dev", &[("power-branch", "one")])
    });
    stage.github.world(|world| {
        world.activity.retain(|moved| moved["after"] != head.as_str());
        world.moved("shared", None, &head, "branch_creation", "mallory");
    });
    stage.approved_by(7, "mallory", &head);
    let merged = stage.merge(7, "shared");
    let own = "mallory wrote or pushed a commit of the change, so their approval does not count";
    stopped(&stage, &merged, "power-branch", own).await;
    stage.approved_by(7, "grace", &head);
    stage.again().outcome.check(0);
    assert_eq!(stage.value("power-branch").await.as_deref(), Some("one"));
}

/// Where GitHub does not say whether the pull request is merged already, nobody can have reviewed what is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_of_which_nobody_knows_whether_it_is_merged_is_not_recorded() {
    let mut stage = Stage::small("").await;
    stage.monorepo.branch("late");
    stage.stack("late/dev", &[("power-late", "one")]);
    stage.monorepo.commit("late");
    let (payload, trial) = stage.opened(7, "late", "opened", "acme/konfig");
    for answer in ANSWERS {
        stage
            .github
            .broken(Some(("GET", "/repos/acme/konfig/pulls/7", act(answer))));
        let ran = stage.preview(7, &payload, &trial);
        let told = &ran.outcome.stderr;
        assert!(told.contains("so its review is not recorded"), "{answer}: {told}");
        let records: Vec<ReviewKey> = stage.states().await.reviews().list().await.unwrap();
        assert!(records.is_empty(), "{answer}: {records:?}");
        let (_, comment) = stage.comments().pop().unwrap();
        assert!(
            comment.contains("wait for an approval by digest"),
            "{answer}: {comment}"
        );
    }
}

/// What GitHub says in place of an answer.
const ANSWERS: [&str; 4] = ["403", "404", "502", "nothing"];

fn act(answer: &str) -> Act {
    let body = json!({"message": "Resource not accessible by integration"});
    match answer {
        "nothing" => Act::DropBefore,
        status => Act::Answer(status.parse().unwrap(), Vec::new(), body),
    }
}
