//! The guardrails end to end: rules in konverge.yaml, people on GitHub, a real API server behind. Each time nothing is
//! touched before the rule is satisfied, and the refusal says what is missing.

use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    payloads,
};

/// What somebody said of a run that waited for an environment.
fn let_go_on(login: &str, state: &str, environment: &str) -> Value {
    json!({"state": state, "comment": "", "environments": [{"id": 1, "name": environment}], "user": {"login": login}})
}

/// Stopped by a rule, and the cluster is as it was.
pub(super) async fn stopped(stage: &Stage, ran: &Ran, map: &str, words: &[&str]) {
    ran.outcome.check(3);
    assert_eq!(stage.value(map).await, None, "{map} was touched");
    for word in words {
        let said = &ran.outcome.stdout;
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_code_owners_team_must_have_approved_the_last_head() {
    let mut stage = Stage::small("policy: {reviewers: [CODEOWNERS], approvals: 1}\n").await;
    stage
        .monorepo
        .write("CODEOWNERS", "* @nobody\n/appops/owned/ @acme/infra\n")
        .commit("Owners");
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
        world.collaborators.insert("grace".into(), "write");
        world.collaborators.insert("bob".into(), "read");
        world.teams.insert("acme/infra".into(), vec!["grace".into()]);
    });
    let (head, previewed) = stage.reviewed(7, "owned", |stage| {
        stage.stack("owned/dev", &[("owned-web", "one")]);
        stage.stack("owned/prod", &[("owned-web-prod", "one")]);
    });
    assert!(
        previewed.summary.contains("policy.reviewers"),
        "{}",
        previewed.summary
    );
    let merged = stage.merge(7, "owned");
    let rules = ["policy.approvals: 0 of 1", "policy.reviewers: one of acme/infra"];
    stopped(&stage, &merged, "owned-web", &rules).await;

    // Somebody else, and the right person on an older head: neither is enough. GITHUB_TOKEN may not look into teams.
    stage.approved_by(7, "bob", &head);
    stage.approved_by(7, "grace", &"1".repeat(40));
    let again = stage.again();
    stopped(
        &stage,
        &again,
        "owned-web",
        &[
            "members: read",
            "policy.reviewers",
            "bob may not push",
            "membership of acme/infra could not be read: ",
        ],
    )
    .await;
    stage.github.world(|world| {
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.insert("members", "read");
    });
    let again = stage.again();
    stopped(
        &stage,
        &again,
        "owned-web",
        &["policy.reviewers: one of acme/infra"],
    )
    .await;

    stage.approved_by(7, "grace", &head);
    let before = stage.github.requests().len();
    stage.again().outcome.check(0);
    assert_eq!(stage.value("owned-web").await.as_deref(), Some("one"));
    assert_eq!(stage.value("owned-web-prod").await.as_deref(), Some("one"));
    // Two stacks, each question once.
    let asked: Vec<_> = stage.github.requests().split_off(before);
    for question in [
        "/reviews",
        "/grace/permission",
        "/bob/permission",
        "/memberships/grace",
    ] {
        let times = asked
            .iter()
            .filter(|request| request.path.ends_with(question))
            .count();
        assert_eq!(times, 1, "{question}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_is_broken_on_main_can_be_repaired() {
    let mut stage = Stage::small("").await;
    let broken = stage.straight_to_main(|stage| stage.configure("stat: {}\n"));
    broken.outcome.check(1);
    let (head, previewed) = stage.reviewed(7, "repair", |stage| {
        stage.configure("");
        stage.stack("repair/dev", &[("repair-web", "one")]);
    });
    let told = &previewed.outcome.stderr;
    assert!(told.contains("konverge.yaml on the default branch ("), "{told}");
    assert!(told.contains("unknown") && told.contains("stat"), "{told}");
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some("success")
    );
    let (_, comment) = stage.comments().pop().unwrap();
    assert!(comment.contains("wait for an approval by digest"), "{comment}");

    // Without its power nothing was recorded, so what it changes waits; the repair itself holds.
    let merged = stage.merge(7, "repair");
    stopped(&stage, &merged, "repair-web", &["approve"]).await;
    stage.reviewed(8, "next", |stage| stage.stack("next/dev", &[("next-web", "one")]));
    let _ = stage.merge(8, "next");
    assert_eq!(stage.value("next-web").await.as_deref(), Some("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_who_may_apply_by_github_s_word() {
    let mut stage = Stage::small("policy: {actors: [grace]}\n").await;
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "admin");
        world.collaborators.insert("grace".into(), "read");
    });
    stage.reviewed(7, "actors", |stage| {
        stage.stack("actors/dev", &[("actors-web", "one")])
    });
    let merged = stage.merge(7, "actors");
    let words = ["policy.actors: dev is not one of those who may apply: grace"];
    stopped(&stage, &merged, "actors-web", &words).await;

    // The right name, but GitHub says that they may only look; the one who starts a run again acts.
    stage.env = vec![
        ("GITHUB_TRIGGERING_ACTOR", "grace".to_owned()),
        ("GITHUB_RUN_ATTEMPT", "2".to_owned()),
    ];
    let again = stage.again();
    stopped(&stage, &again, "actors-web", &["grace may not push"]).await;
    stage.github.world(|world| {
        world.collaborators.insert("grace".into(), "write");
        world.protected.clear();
    });
    let again = stage.again();
    stopped(
        &stage,
        &again,
        "actors-web",
        &["policy.branch: the branch is not protected"],
    )
    .await;
    stage.github.world(|world| world.protected.push("main".into()));
    stage.again().outcome.check(0);
    assert_eq!(stage.value("actors-web").await.as_deref(), Some("one"));
}

/// An App that merges is no user, so GitHub says nothing of what it may; that it could push says enough.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_bot_merges_is_applied() {
    let rules =
        "policy: {approvals: 1}\nstacks: [{match: 'merged/prod', policy: {actors: ['mergify[bot]']}}]\n";
    let mut stage = Stage::small(rules).await;
    stage
        .github
        .world(|world| world.collaborators.insert("grace".into(), "write"));
    let propose = |stage: &mut Stage, number, branch: &str, value: &str| {
        let (head, _) = stage.reviewed(number, branch, |stage| {
            stage.stack("merged/dev", &[("merged-web", value)]);
            stage.stack("merged/prod", &[("merged-web-prod", value)]);
        });
        stage.approved_by(number, "grace", &head);
    };
    propose(&mut stage, 7, "first", "one");
    stage.env = vec![("GITHUB_ACTOR", "mergify[bot]".to_owned())];
    stage.merge(7, "first").outcome.check(0);
    assert_eq!(stage.value("merged-web").await.as_deref(), Some("one"));
    assert_eq!(stage.value("merged-web-prod").await.as_deref(), Some("one"));

    // Someone who starts a run again, or by hand, has pushed nothing.
    propose(&mut stage, 8, "second", "two");
    stage.env.push(("GITHUB_RUN_ATTEMPT", "2".to_owned()));
    let again = stage.merge(8, "second");
    again.outcome.check(3);
    let said = &again.outcome.stdout;
    assert!(said.contains("mergify[bot] may not push"), "{said}");
    assert_eq!(stage.value("merged-web").await.as_deref(), Some("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_holds_an_apply_back_until_it_is_over() {
    let freeze = |until: &str| {
        format!(
            "policy: {{freeze: [{{from: '2020-01-01T00:00:00Z', until: '{until}', reason: the fair}}]}}\n"
        )
    };
    let mut stage = Stage::small(&freeze("2999-01-01T00:00:00Z")).await;
    let (_, previewed) = stage.reviewed(7, "frozen", |stage| {
        stage.stack("frozen/dev", &[("frozen-web", "one")]);
    });
    let comment = &stage.comments()[0].1;
    assert!(
        comment.contains("policy.freeze") && comment.contains("the fair"),
        "{comment}"
    );
    drop(previewed);
    let merged = stage.merge(7, "frozen");
    let words = ["policy.freeze", "2999-01-01", "the fair"];
    stopped(&stage, &merged, "frozen-web", &words).await;
    // The rules are the default branch's: they change by a merge, and the next run catches up.
    let thawed = stage.straight_to_main(|stage| stage.configure(&freeze("2021-01-01T00:00:00Z")));
    thawed.outcome.check(0);
    assert_eq!(stage.value("frozen-web").await.as_deref(), Some("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_deletes_than_allowed_take_a_consent_of_their_own() {
    let mut stage = Stage::small("policy: {max_destructive: 1}\n").await;
    let maps = [("radius-a", "one"), ("radius-b", "one"), ("radius-c", "one")];
    stage.reviewed(7, "radius", |stage| stage.stack("radius/dev", &maps));
    stage.merge(7, "radius").outcome.check(0);
    stage.reviewed(8, "fewer", |stage| stage.stack("radius/dev", &maps[..1]));
    let merged = stage.merge(8, "fewer");
    merged.outcome.check(3);
    let said = &merged.outcome.stdout;
    assert!(
        said.contains(
            "policy.max_destructive: 2 resources would be deleted or replaced; at most 1 is allowed"
        ),
        "{said}"
    );
    assert!(stage.value("radius-c").await.is_some());
    stage.approve(&"0".repeat(64)).outcome.check(3);
    stage.approve(&merged.digest()).outcome.check(0);
    assert_eq!(stage.value("radius-c").await, None);
    let receipt = stage.receipt("radius/dev");
    assert_eq!(receipt["agreedBy"], json!(["dev"]));
    assert_eq!(receipt["pullRequests"][0]["number"], 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_is_agreed_to_by_who_starts_the_run_and_its_environment_s_reviewers() {
    let mut stage = Stage::small("policy: {approvals: 2}\n").await;
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.remove("actions");
    });
    // Who pushes counts for nothing of it: here that is somebody else than those who agree.
    stage.env = vec![("GITHUB_ACTOR", "ada".to_owned())];
    let pushed = stage.straight_to_main(|stage| stage.stack("hurry/dev", &[("hurry-web", "one")]));
    stopped(
        &stage,
        &pushed,
        "hurry-web",
        &["no merged pull request showed this change"],
    )
    .await;
    let digest = pushed.digest();

    // One person is not two, and a job that may not ask who else there is says so.
    stage.env = vec![("KONVERGE_ENVIRONMENT", "production".to_owned())];
    let alone = stage.approve(&digest);
    stopped(&stage, &alone, "hurry-web", &["policy.approvals: 1 of 2"]).await;
    let stderr = &alone.outcome.stderr;
    assert!(stderr.contains("`actions: read`"), "{stderr}");
    stage.github.world(|world| {
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.insert("actions", "read");
        world.run_approvals = vec![
            let_go_on("dev", "approved", "Production"),
            let_go_on("eve", "rejected", "production"),
            let_go_on("grace", "approved", "staging"),
        ];
    });
    let alone = stage.approve(&digest);
    stopped(&stage, &alone, "hurry-web", &["policy.approvals: 1 of 2"]).await;
    stage
        .github
        .world(|world| world.run_approvals[1]["state"] = json!("approved"));
    // Without the name of this job's environment nobody can be told from those who let another job go on.
    stage.env.clear();
    let unnamed = stage.approve(&digest);
    stopped(&stage, &unnamed, "hurry-web", &["policy.approvals: 1 of 2"]).await;
    stage.env = vec![("KONVERGE_ENVIRONMENT", "production".to_owned())];
    stage.approve(&digest).outcome.check(0);
    assert_eq!(stage.value("hurry-web").await.as_deref(), Some("one"));
    assert_eq!(stage.receipt("hurry/dev")["agreedBy"], json!(["dev", "eve"]));

    // Nobody agrees to their own pull request.
    stage.env = vec![("GITHUB_TRIGGERING_ACTOR", "ada".to_owned())];
    stage.github.world(|world| {
        world.collaborators.insert("ada".into(), "admin");
        world.run_approvals.truncate(1);
    });
    let (head, _) = stage.reviewed(7, "own", |stage| {
        stage.stack("hurry/dev", &[("hurry-web", "two")])
    });
    stage.approved_by(7, "grace", &head);
    let merged = stage.merge(7, "own");
    merged.outcome.check(3);
    let plan = stage.monorepo.rev("main");
    assert_eq!(stage.status(&plan, "konverge/apply").as_deref(), Some("failure"));
    let result = std::fs::read_to_string(merged.output("result-path")).unwrap();
    assert!(result.contains("policy.approvals: 1 of 2"), "{result}");
}

/// Another system may ask for what a push or a person would: what was reviewed, a digest, a look for drift.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_from_elsewhere_catches_up_agrees_and_looks() {
    let mut stage = Stage::small("").await;
    let call = |stage: &mut Stage, action: &str, payload| {
        let tip = stage.monorepo.rev("main");
        let payload = payloads::repository_dispatch(action, payload);
        stage.ci("repository_dispatch", &payload, &tip, "refs/heads/main")
    };
    // A merge that started no run, as one by GITHUB_TOKEN.
    stage.reviewed(7, "call", |stage| stage.stack("call/dev", &[("call-web", "one")]));
    stage.press_merge(7, "call");
    call(&mut stage, "konverge-apply", json!({})).outcome.check(0);
    assert_eq!(stage.value("call-web").await.as_deref(), Some("one"));

    let pushed = stage.straight_to_main(|stage| stage.stack("call/dev", &[("call-web", "two")]));
    call(&mut stage, "konverge-apply", json!({})).outcome.check(3);
    let approve = json!({"approve": pushed.digest()});
    call(&mut stage, "konverge-apply", approve).outcome.check(0);
    assert_eq!(stage.value("call-web").await.as_deref(), Some("two"));
    assert_eq!(stage.receipt("call/dev")["agreedBy"], json!(["dev"]));

    stage.by_hand("call-web", Some("three")).await;
    let looked = call(&mut stage, "konverge-drift", json!({}));
    looked.outcome.check(0);
    assert_eq!(looked.output("has-drift"), "true");
}

/// The second job of a push: its environment's reviewers were shown the digests that the first one stopped. The one
/// who pushed was not asked, and agrees to nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_reviewers_of_a_push_s_second_job_agree_to_what_the_first_one_stopped() {
    let mut stage = Stage::small("policy: {approvals: 1}\n").await;
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
    });
    let pushed = stage.straight_to_main(|stage| stage.stack("gate/dev", &[("gate-web", "one")]));
    stopped(
        &stage,
        &pushed,
        "gate-web",
        &["no merged pull request showed this change"],
    )
    .await;
    let digests = pushed.output("unreviewed");
    assert_eq!(digests, pushed.digest());
    let result = std::fs::read_to_string(pushed.output("result-path")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["stacks"][0]["digest"], *digests);

    // An environment that asks nobody lets everything through.
    let second = |digests: &str| {
        vec![
            ("KONVERGE_APPROVE", digests.to_owned()),
            ("KONVERGE_ENVIRONMENT", "unreviewed".to_owned()),
        ]
    };
    stage.env = second(&digests);
    let nobody = stage.again();
    stopped(&stage, &nobody, "gate-web", &[]).await;
    let stderr = &nobody.outcome.stderr;
    assert!(stderr.contains("nobody approved this run"), "{stderr}");

    // Nor does who let the run go on before there was a plan, in the environment of another of its jobs.
    let early = let_go_on("ada", "approved", "production");
    stage.github.world(|world| world.run_approvals = vec![early]);
    let early = stage.again();
    stopped(&stage, &early, "gate-web", &[]).await;
    let stderr = &early.outcome.stderr;
    assert!(
        stderr.contains("nobody approved this run in the environment `unreviewed`"),
        "{stderr}"
    );

    let agreed = let_go_on("eve", "approved", "unreviewed");
    stage.github.world(|world| world.run_approvals.push(agreed));
    stage.env = vec![("KONVERGE_APPROVE", digests.clone())];
    let unnamed = stage.again();
    stopped(&stage, &unnamed, "gate-web", &[]).await;
    let stderr = &unnamed.outcome.stderr;
    assert!(stderr.contains("set the input `environment`"), "{stderr}");
    // They agreed to these digests and to no others, in this attempt and in no other.
    stage.env = second(&"0".repeat(64));
    let other = stage.again();
    stopped(
        &stage,
        &other,
        "gate-web",
        &["no merged pull request showed this change"],
    )
    .await;
    stage.env = second(&digests);
    stage.env.push(("GITHUB_RUN_ATTEMPT", "2".to_owned()));
    let rerun = stage.again();
    stopped(&stage, &rerun, "gate-web", &[]).await;
    let stderr = &rerun.outcome.stderr;
    assert!(stderr.contains("the run was restarted"), "{stderr}");

    stage.env = second(&digests);
    stage.again().outcome.check(0);
    assert_eq!(stage.value("gate-web").await.as_deref(), Some("one"));
    assert_eq!(stage.receipt("gate/dev")["agreedBy"], json!(["eve"]));
}
