//! Overrides of policy findings: only the right person, for exactly the finding, and never for their own change. Each
//! row that does not fit changes nothing. GitHub is played by the fake, the API server is real.

use serde_json::json;

use crate::support::ci_stage::{Ran, Stage};

const SETS: &str = "policy:\n  sets:\n  - {name: maps, path: ops/policy, input: objects, enforce: override, override: {by: [acme/sre]}}\n";

const RULES: &str = "package main\n\ndeny contains msg if {\n\tstartswith(input.data.value, \"bad\")\n\tmsg := sprintf(\"%s holds %s\", [input.metadata.name, input.data.value])\n}\n";

/// The digest of the finding, as its hint names it.
fn digest_of(ran: &Ran) -> String {
    ran.digest()
}

fn starts(stage: &mut Stage, login: &str) {
    stage.env = vec![("GITHUB_ACTOR", login.to_owned())];
}

async fn refused(stage: &Stage, ran: &Ran, map: &str, row: &str) {
    assert_eq!(ran.outcome.code, Some(3), "{row}: {}", ran.outcome.stdout);
    assert_eq!(stage.value(map).await, None, "{row}: it was applied");
    assert!(
        ran.outcome.stdout.contains("maps/main.deny"),
        "{row}: {}",
        ran.outcome.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_right_person_overrides_exactly_one_finding() {
    let mut stage = Stage::small(SETS).await;
    stage
        .monorepo
        .write("ops/policy/maps.rego", RULES)
        .commit("Rules");
    stage.github.world(|world| {
        for login in ["ada", "dev", "grace", "bob"] {
            world.collaborators.insert(login.into(), "write");
        }
        world.collaborators.insert("eve".into(), "read");
        world.teams.insert(
            "acme/sre".into(),
            vec!["grace".into(), "ada".into(), "eve".into()],
        );
    });
    stage.reviewed(7, "exception", |stage| {
        stage.stack("exception/dev", &[("override-a", "bad-a")]);
    });
    let comment = stage.comments()[0].1.clone();
    assert!(
        comment.contains("one of acme/sre may override exactly this finding"),
        "{comment}"
    );
    let merged = stage.merge(7, "exception");
    let map = "override-a";
    refused(&stage, &merged, map, "nobody overrides").await;
    let digest = digest_of(&merged);

    // GITHUB_TOKEN may not look into teams: nobody is known to be in one.
    starts(&mut stage, "grace");
    let ran = stage.approve(&digest);
    refused(&stage, &ran, map, "the team cannot be read").await;
    let unreadable = "membership of acme/sre could not be read: ";
    assert!(ran.outcome.stdout.contains(unreadable), "{}", ran.outcome.stdout);
    stage.github.world(|world| {
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.insert("members", "read");
    });
    for (login, given, row) in [
        ("bob", digest.as_str(), "not in the team"),
        ("ada", digest.as_str(), "their own change"),
        ("eve", digest.as_str(), "may not push"),
        ("grace", &"0".repeat(64), "another finding"),
    ] {
        starts(&mut stage, login);
        let ran = stage.approve(given);
        refused(&stage, &ran, map, row).await;
    }
    starts(&mut stage, "grace");
    // A maintainer may push to the branch of a fork, with the name of somebody else in the commits.
    let from = |stage: &Stage, repository: &str| {
        stage.github.world(|world| {
            let pull = world.pulls.iter_mut().find(|pull| pull.number == 7);
            pull.unwrap().head_repository = Some(repository.to_owned());
        });
    };
    from(&stage, "mallory/konfig");
    let ran = stage.approve(&digest);
    refused(&stage, &ran, map, "nobody knows who pushed to a fork").await;
    assert!(
        ran.outcome.stderr.contains("no override counts for #7"),
        "{}",
        ran.outcome.stderr
    );
    from(&stage, "acme/konfig");
    stage.approve(&digest).outcome.check(0);
    assert_eq!(stage.value(map).await.as_deref(), Some("bad-a"));
    stage.env.clear();
    let receipt = stage.receipt("exception/dev");
    let overrides = &receipt["overrides"];
    assert_eq!(overrides[0]["by"], json!(["grace"]), "{receipt}");
    assert_eq!(overrides[0]["finding"], json!(digest));
    assert_eq!(overrides[0]["rule"], "maps/main.deny");
    assert_eq!(overrides[0]["message"], "override-a holds bad-a");
    assert_eq!(overrides[0]["why"], "the vendor fixes it by May");

    // What is new is never covered: the same rule, another message.
    stage.reviewed(8, "more", |stage| {
        stage.stack(
            "exception/dev",
            &[("override-a", "bad-a"), ("override-b", "bad-b")],
        );
    });
    stage.merge(8, "more").outcome.check(3);
    starts(&mut stage, "grace");
    let ran = stage.approve(&digest);
    refused(&stage, &ran, "override-b", "an older finding's digest").await;
}

/// A review of the last head overrides what its own words name, or what the comment showed before it. Whatever does not
/// fit changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_review_overrides_what_its_own_words_name() {
    let mut stage = Stage::small(SETS).await;
    stage
        .monorepo
        .write("ops/policy/maps.rego", RULES)
        .commit("Rules");
    stage.github.world(|world| {
        for login in ["ada", "dev", "grace", "bob"] {
            world.collaborators.insert(login.into(), "write");
        }
        world.collaborators.insert("eve".into(), "read");
        let sre = ["grace", "ada", "eve"].map(str::to_owned);
        world.teams.insert("acme/sre".into(), sre.to_vec());
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.insert("members", "read");
    });
    let all = "Fine for now.\nkonverge override";
    let (old, _) = stage.reviewed(7, "shown", |stage| {
        stage.stack("shown/dev", &[("override-s", "bad-old")]);
    });
    stage.monorepo.checkout("shown");
    stage.stack("shown/dev", &[("override-s", "bad-s")]);
    let head = stage.monorepo.commit("Another head");
    // Somebody who is named approves before the comment shows this head.
    stage.approved_saying(7, "grace", &head, all);
    stage.pull_request(7, "shown", "synchronize").outcome.check(0);
    let merged = stage.merge(7, "shown");
    let map = "override-s";
    refused(&stage, &merged, map, "a review before the comment").await;
    let said = &merged.outcome.stderr;
    assert!(
        said.contains("was not given after the comment showed the finding"),
        "{said}"
    );
    let digest = digest_of(&merged);

    for (login, head, words, row) in [
        ("grace", &head, "agreed", "an ordinary approval"),
        (
            "grace",
            &head,
            &format!("> approve: {digest}\nwhy?"),
            "a quoted digest",
        ),
        ("grace", &head, &"0".repeat(64), "another digest"),
        ("bob", &head, all, "not in the team"),
        ("ada", &head, all, "their own change"),
        ("eve", &head, all, "may not push"),
        ("grace", &old, all, "an older head"),
    ] {
        stage.github.world(|world| world.reviews.clear());
        stage.approved_saying(7, login, head, words);
        let again = stage.again();
        refused(&stage, &again, map, row).await;
    }
    // Someone who may push may edit the words of somebody else.
    for words in [all, &digest] {
        stage.github.world(|world| world.reviews.clear());
        stage.approved_saying(7, "grace", &head, words);
        stage
            .github
            .world(|world| world.reviews[0].1["editor"] = json!({"login": "ada"}));
        let again = stage.again();
        refused(&stage, &again, map, "edited by another").await;
        let said = &again.outcome.stderr;
        assert!(said.contains("the review of grace was edited by ada"), "{said}");
    }
    // Someone who may write to the store took away what says how the comment was written.
    let records = stage.scratch.path().join("store/reviews/7").join(&head);
    let comments: Vec<_> = std::fs::read_dir(&records)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "comment"))
        .collect();
    assert_eq!(comments.len(), 1, "{comments:?}");
    let away = stage.scratch.path().join("away");
    std::fs::rename(&comments[0], &away).unwrap();
    for words in [all, &digest] {
        stage.github.world(|world| world.reviews.clear());
        stage.approved_saying(7, "grace", &head, words);
        let again = stage.again();
        refused(&stage, &again, map, "no comment is recorded").await;
        let said = &again.outcome.stderr;
        assert!(
            said.contains("no comment of the preview of #7 is recorded"),
            "{said}"
        );
    }
    std::fs::rename(&away, &comments[0]).unwrap();
    // The comment was edited: nobody knows what was seen, unless the words name the finding.
    let shown = stage.github.world(|world| world.comments[0].body.clone());
    for (body, row) in [
        (shown.replace("bad-s", "good"), "an edited comment"),
        (
            shown.split_once('\n').unwrap().1.to_owned(),
            "a comment without its marker",
        ),
    ] {
        stage.github.world(|world| {
            world.comments[0].body = body;
            world.reviews.clear();
        });
        stage.approved_saying(7, "grace", &head, all);
        let again = stage.again();
        refused(&stage, &again, map, row).await;
        let edited = "the comment of the preview of #7 was edited or deleted after Konverge wrote it";
        assert!(
            again.outcome.stdout.contains(edited),
            "{row}: {}",
            again.outcome.stdout
        );
    }
    // A rule that says something else now: nobody was shown that.
    stage.github.world(|world| {
        world.comments[0].body = shown;
        world.reviews.clear();
    });
    let other = RULES.replace("%s holds %s", "%s still holds %s");
    stage
        .straight_to_main(|stage| {
            stage.monorepo.write("ops/policy/maps.rego", &other);
        })
        .outcome
        .check(3);
    stage.approved_saying(7, "grace", &head, all);
    let again = stage.again();
    refused(&stage, &again, map, "another finding").await;
    stage.straight_to_main(|stage| {
        stage.monorepo.write("ops/policy/maps.rego", RULES);
    });
    assert_eq!(stage.value(map).await.as_deref(), Some("bad-s"));
    let receipt = stage.receipt("shown/dev");
    assert_eq!(receipt["overrides"][0]["by"], json!(["grace"]), "{receipt}");
    let passed = &receipt["findings"]["shown"][0]["place"]["passedBy"];
    assert_eq!(passed, &json!({"override": ["grace"]}), "{receipt}");

    // The digest in a review's own words, beside an edited comment.
    let (head, _) = stage.reviewed(8, "named", |stage| {
        stage.stack("named/dev", &[("override-n", "bad-n")]);
    });
    let merged = stage.merge(8, "named");
    refused(&stage, &merged, "override-n", "nobody overrides").await;
    stage.github.world(|world| {
        let comment = world
            .comments
            .iter_mut()
            .find(|comment| comment.issue == 8)
            .unwrap();
        comment.body.push_str("\nAll is well.");
    });
    let words = format!("The vendor is late: {}", digest_of(&merged));
    stage.approved_saying(8, "grace", &head, &words);
    stage.again().outcome.check(0);
    assert_eq!(stage.value("override-n").await.as_deref(), Some("bad-n"));
}

/// What the set was when the pull request was reviewed names who may override it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_does_not_name_its_own_overriders() {
    let mut stage = Stage::small(SETS).await;
    stage
        .monorepo
        .write("ops/policy/maps.rego", RULES)
        .commit("Rules");
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
        world.collaborators.insert("bob".into(), "write");
    });
    stage.reviewed(7, "mine", |stage| {
        stage.stack("mine/dev", &[("override-mine", "bad-m")]);
        stage.configure(&SETS.replace("acme/sre", "bob"));
    });
    let merged = stage.merge(7, "mine");
    refused(&stage, &merged, "override-mine", "nobody overrides").await;
    starts(&mut stage, "bob");
    let ran = stage.approve(&digest_of(&merged));
    refused(&stage, &ran, "override-mine", "named by the change itself").await;
}

/// Someone who wrote a part, is named in it, or pushed it overrides nothing of it: neither by its digest nor by a
/// review.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_overrides_what_they_took_part_in() {
    let mut stage = Stage::small(&SETS.replace("acme/sre", "eve, bob, mallory, grace")).await;
    stage
        .monorepo
        .write("ops/policy/maps.rego", RULES)
        .commit("Rules");
    stage.github.world(|world| {
        for login in ["dev", "eve", "bob", "mallory", "grace"] {
            world.collaborators.insert(login.into(), "write");
        }
    });
    let (head, _) = stage.reviewed(7, "parts", |stage| {
        stage.stack("parts/dev", &[("override-parts", "bad-p")]);
        stage.monorepo.git(["add", "--all"]);
        stage.monorepo.git([
            "commit",
            "--quiet",
            "--author=Eve <7+eve@users.noreply.github.com>",
            "--message=Parts\n\nCo-authored-by: Bob <bob@users.noreply.github.com>",
        ]);
    });
    stage.github.world(|world| {
        world.activity.retain(|moved| moved["after"] != head.as_str());
        world.moved("parts", None, &head, "branch_creation", "mallory");
    });
    let merged = stage.merge(7, "parts");
    let map = "override-parts";
    refused(&stage, &merged, map, "nobody overrides").await;
    let digest = digest_of(&merged);
    for login in ["eve", "bob", "mallory"] {
        starts(&mut stage, login);
        let ran = stage.approve(&digest);
        refused(&stage, &ran, map, &format!("{login} by the digest")).await;
        stage.env.clear();
        stage.github.world(|world| world.reviews.clear());
        stage.approved_saying(7, login, &head, &digest);
        let again = stage.again();
        refused(&stage, &again, map, &format!("{login} by a review")).await;
    }
    starts(&mut stage, "grace");
    stage.approve(&digest).outcome.check(0);
    assert_eq!(stage.value(map).await.as_deref(), Some("bad-p"));
}

/// Someone who pushed a commit straight to the default branch overrides nothing of it, although no pull request names
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_overrides_what_they_pushed_straight() {
    let mut stage = Stage::small(&SETS.replace("acme/sre", "eve, grace")).await;
    stage
        .monorepo
        .write("ops/policy/maps.rego", RULES)
        .commit("Rules");
    stage.github.world(|world| {
        for login in ["eve", "grace"] {
            world.collaborators.insert(login.into(), "write");
        }
    });
    starts(&mut stage, "eve");
    let pushed = stage.straight_to_main(|stage| {
        stage.stack("straight/dev", &[("override-straight", "bad-s")]);
    });
    let map = "override-straight";
    // First the plan, which no review showed, then the finding.
    starts(&mut stage, "grace");
    let plan = digest_of(&pushed);
    let denied = stage.approve(&plan);
    refused(&stage, &denied, map, "nobody overrides").await;
    let digests = format!("{plan} {}", digest_of(&denied));
    starts(&mut stage, "eve");
    let ran = stage.approve(&digests);
    refused(&stage, &ran, map, "who pushed it").await;
    starts(&mut stage, "grace");
    stage.approve(&digests).outcome.check(0);
    assert_eq!(stage.value(map).await.as_deref(), Some("bad-s"));
}
