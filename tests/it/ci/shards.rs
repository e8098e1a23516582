//! A preview dealt out over the jobs of a matrix: a comment and a record for each share, one status for all of them,
//! and a merge that applies what any of them showed.

use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    payloads,
};

/// The three stacks of these tests, in the order in which they are dealt, and what each one's ConfigMap is called.
const STACKS: [&str; 3] = ["a/dev", "b/dev", "c/dev"];

/// A pull request whose shares are previewed in jobs of one run.
struct Dealt {
    stage: Stage,
    prefix: &'static str,
    /// Which try of its run a job is.
    attempt: u32,
    /// What GitHub says became of the shards' jobs, for the job after them.
    result: &'static str,
}

impl Dealt {
    async fn begin(prefix: &'static str) -> Self {
        let stage = Stage::small("").await;
        let dealt = Self {
            stage,
            prefix,
            attempt: 1,
            result: "",
        };
        dealt.stage.propose("change", |_| dealt.write("one"));
        dealt
    }

    fn map(&self, id: &str) -> String {
        format!("{}-{}", self.prefix, id.replace('/', "-"))
    }

    fn write(&self, value: &str) {
        for id in STACKS {
            self.stage
                .stack(&format!("{}-{id}", self.prefix), &[(&self.map(id), value)]);
        }
    }

    /// Another commit of the pull request.
    fn push(&self, value: &str) {
        self.stage.monorepo.checkout("change");
        self.write(value);
        self.stage.monorepo.commit(value);
    }

    /// One job of a run.
    fn job(&mut self, run: u64, shard: &str) -> Ran {
        let (payload, trial) = self.stage.opened(7, "change", "synchronize", "acme/konfig");
        self.stage.env = vec![
            ("KONVERGE_SHARD", shard.to_owned()),
            ("GITHUB_RUN_ID", run.to_string()),
            ("GITHUB_RUN_ATTEMPT", self.attempt.to_string()),
            ("KONVERGE_SHARD_RESULT", self.result.to_owned()),
        ];
        let ran = if shard.starts_with("all/") {
            // The verdict needs no checkout.
            let nowhere = tempfile::tempdir().unwrap();
            self.stage.ci_in(
                nowhere.path(),
                "pull_request",
                &payload,
                &trial,
                "refs/pull/7/merge",
            )
        } else {
            self.stage.preview(7, &payload, &trial)
        };
        self.stage.env.clear();
        ran
    }

    fn head(&self) -> String {
        self.stage.monorepo.rev("change")
    }

    fn status(&self, context: &str) -> Option<String> {
        self.stage.status(&self.head(), context)
    }

    /// All that a status has said, the oldest first.
    fn said(&self, context: &str) -> Vec<String> {
        let head = self.head();
        let of = |(at, body): &&(String, Value)| *at == head && body["context"] == context;
        let state = |(_, body): &(String, Value)| body["state"].as_str().unwrap().to_owned();
        self.stage
            .github
            .world(|world| world.statuses.iter().filter(of).map(state).collect())
    }

    async fn values(&self) -> Vec<Option<String>> {
        let mut values = Vec::new();
        for id in STACKS {
            values.push(self.stage.value(&self.map(id)).await);
        }
        values
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_have_comments_of_their_own_and_are_merged_as_one() {
    let mut dealt = Dealt::begin("dealt").await;
    for shard in ["1/2", "2/2"] {
        dealt.job(100, shard).outcome.check(0);
        assert_eq!(
            dealt.status(&format!("konverge/preview {shard}")).as_deref(),
            Some("success")
        );
        assert_eq!(dealt.status("konverge/preview").as_deref(), Some("pending"));
    }
    let comments = dealt.stage.comments();
    assert_eq!(comments.len(), 2, "{comments:?}");
    let shows = |comments: &[(u64, String)], at: usize| -> Vec<&str> {
        let body = &comments[at].1;
        let shown = |id: &&str| body.contains(&format!("dealt-{id}"));
        STACKS.into_iter().filter(shown).collect()
    };
    assert_eq!(shows(&comments, 0), ["a/dev", "c/dev"]);
    assert_eq!(shows(&comments, 1), ["b/dev"]);
    for (at, share) in ["`1/2`", "`2/2`"].iter().enumerate() {
        let body = &comments[at].1;
        assert!(
            body.contains(share) && body.contains("the other shards have their own comments"),
            "{body}"
        );
    }
    let verdict = dealt.job(100, "all/2");
    verdict.outcome.check(0);
    assert_eq!(verdict.outcome.stdout, "all 2 shards were previewed\n");
    assert_eq!(dealt.status("konverge/preview").as_deref(), Some("success"));
    assert_eq!(dealt.stage.comments().len(), 2, "the verdict writes none");

    // The next push edits both where they stand, and the old verdict holds no longer.
    dealt.push("two");
    dealt.job(101, "2/2").outcome.check(0);
    dealt.job(101, "1/2").outcome.check(0);
    let updated = dealt.stage.comments();
    let ids = |comments: &[(u64, String)]| comments.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(&updated), ids(&comments));
    let head = dealt.head();
    assert!(
        updated.iter().all(|(_, body)| body.contains(&head[..7])),
        "{updated:?}"
    );
    dealt.job(101, "all/2").outcome.check(0);

    let merged = dealt.stage.merge(7, "change");
    merged.outcome.check(0);
    assert_eq!(dealt.values().await, vec![Some("two".to_owned()); 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_is_missing_was_not_reviewed() {
    let mut dealt = Dealt::begin("missed").await;
    dealt.job(100, "1/2").outcome.check(0);
    let verdict = dealt.job(100, "all/2");
    verdict.outcome.check(1);
    assert_eq!(verdict.outcome.stdout, "no result from shards 2/2\n");
    assert_eq!(dealt.status("konverge/preview").as_deref(), Some("error"));

    let merged = dealt.stage.merge(7, "change");
    merged.outcome.check(3);
    let said = &merged.outcome.stdout;
    assert!(said.contains("missed-b/dev was stopped"), "{said}");
    let one = Some("one".to_owned());
    assert_eq!(dealt.values().await, [one.clone(), None, one]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_fails_is_no_success() {
    let mut dealt = Dealt::begin("failed").await;
    dealt.stage.monorepo.checkout("change");
    dealt
        .stage
        .monorepo
        .write("appops/failed-b/dev/main.k", "resources = [nothing]\n");
    dealt.stage.monorepo.commit("Broken");
    dealt.job(100, "1/2").outcome.check(0);
    dealt.job(100, "2/2").outcome.check(1);
    // All that a verdict needs.
    dealt.stage.github.world(|world| {
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions = [("statuses", "write")].into();
    });
    let verdict = dealt.job(100, "all/2");
    verdict.outcome.check(1);
    assert_eq!(verdict.outcome.stdout, "could not be previewed: shards 2/2\n");
    assert_eq!(dealt.status("konverge/preview").as_deref(), Some("failure"));
}

/// Another number of shares leaves no comment of the old ones, and a job that was dealt nothing says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn no_comment_of_another_deal_stays() {
    let mut dealt = Dealt::begin("redealt").await;
    let scopes = |dealt: &Dealt| -> Vec<String> {
        let bodies = dealt.stage.comments().into_iter();
        bodies
            .map(|(_, body)| {
                konverge_base::model::comment_marker::CommentMarker::parse(&body)
                    .unwrap()
                    .scope
            })
            .collect()
    };
    for shard in ["1/3", "2/3", "3/3"] {
        dealt.job(100, shard).outcome.check(0);
    }
    assert_eq!(scopes(&dealt), ["1/3", "2/3", "3/3"]);
    for shard in ["1/5", "2/5", "3/5", "4/5", "5/5"] {
        dealt.job(101, shard).outcome.check(0);
    }
    assert_eq!(scopes(&dealt), ["1/5", "2/5", "3/5"]);
    dealt.job(101, "all/5").outcome.check(0);
    // Two stacks are as they were on the base again.
    for id in &STACKS[..2] {
        let project = format!("appops/redealt-{}", id.split('/').next().unwrap());
        dealt.stage.monorepo.checkout("change").remove(&project);
    }
    dealt.stage.monorepo.commit("Fewer");
    for shard in ["5/5", "4/5", "3/5", "2/5", "1/5"] {
        dealt.job(102, shard).outcome.check(0);
    }
    assert_eq!(scopes(&dealt), ["1/5"]);
    let (payload, trial) = dealt.stage.opened(7, "change", "synchronize", "acme/konfig");
    dealt.stage.preview(7, &payload, &trial).outcome.check(0);
    assert_eq!(scopes(&dealt), [""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_previews_are_dealt_out() {
    let mut stage = Stage::small("").await;
    let tip = stage.monorepo.rev("main");
    let dispatch = json!({"ref": "refs/heads/main", "inputs": {}, "repository": {"full_name": "acme/konfig", "default_branch": "main"}});
    let events: [(&str, Value); 2] = [
        ("push", payloads::push("main", &tip, &tip, false)),
        ("workflow_dispatch", dispatch),
    ];
    for (event, payload) in events {
        for shard in ["1/2", "all/2"] {
            stage.env = vec![("KONVERGE_SHARD", shard.to_owned())];
            let refused = stage.ci(event, &payload, &tip, "refs/heads/main");
            refused.outcome.check(64);
            let said = &refused.outcome.stderr;
            assert!(said.contains("remove `shard` from"), "{said}");
        }
    }
    stage.env = vec![("KONVERGE_SHARD", "3/2".to_owned())];
    let refused = stage.ci(
        "push",
        &payloads::push("main", &tip, &tip, false),
        &tip,
        "refs/heads/main",
    );
    refused.outcome.check(64);
    assert!(stage.github.requests().is_empty());
}

/// What an earlier run said of the same commit holds no longer while a share is at work. GitHub takes 80 writes a
/// minute, so it is said once, wherever that can be seen.
#[tokio::test(flavor = "multi_thread")]
async fn the_whole_is_open_while_shares_are_at_work_and_said_so_once() {
    const WHOLE: &str = "konverge/preview";
    let mut dealt = Dealt::begin("open").await;
    for shard in ["3/3", "1/3", "2/3"] {
        dealt.job(100, shard).outcome.check(0);
        assert_eq!(dealt.said(WHOLE), ["pending"], "{shard}");
        assert_eq!(dealt.said(&format!("{WHOLE} {shard}")), ["success"]);
    }
    let requests = dealt.stage.github.requests();
    let about_statuses = requests.iter().filter(|one| one.path.contains("/statuses"));
    assert_eq!(
        about_statuses.count(),
        3 * 2 + 1,
        "no share needs more than three"
    );
    dealt.job(100, "all/3").outcome.check(0);

    // Another event of the same commit: whichever share is the first takes the verdict back.
    dealt.job(101, "2/3").outcome.check(0);
    assert_eq!(dealt.said(WHOLE), ["pending", "success", "pending"]);
    dealt.job(101, "1/3").outcome.check(0);
    assert_eq!(dealt.said(WHOLE).len(), 3);
    // So much has been said since that it cannot be seen.
    let head = dealt.head();
    dealt.stage.github.world(|world| {
        let other = |n: u32| json!({"context": format!("other {n}"), "state": "success"});
        world.statuses.extend((0..120).map(|n| (head.clone(), other(n))));
    });
    dealt.job(101, "3/3").outcome.check(0);
    assert_eq!(dealt.said(WHOLE)[3..], ["pending"]);
    dealt.job(101, "all/3").outcome.check(0);

    // A share is started again by itself. It has said yes in this run before, which would be taken for this try's.
    dealt.attempt = 2;
    dealt.job(101, "2/3").outcome.check(0);
    assert_eq!(dealt.said(WHOLE)[4..], ["success", "pending"]);
    assert_eq!(dealt.said("konverge/preview 2/3")[2..], ["pending", "success"]);
    dealt.result = "success";
    dealt.job(101, "all/3").outcome.check(0);
    assert_eq!(dealt.status(WHOLE).as_deref(), Some("success"));
}

/// "Re-run all jobs" starts each shard again. One dies before it can say anything: what it said in the first attempt is
/// still there, and does not count.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_died_when_all_were_started_again_has_no_result() {
    let mut dealt = Dealt::begin("again").await;
    for shard in ["1/2", "2/2", "all/2"] {
        dealt.job(100, shard).outcome.check(0);
    }
    dealt.attempt = 2;
    dealt.job(100, "2/2").outcome.check(0);
    for result in ["failure", "cancelled", ""] {
        dealt.result = result;
        let verdict = dealt.job(100, "all/2");
        verdict.outcome.check(1);
        assert_eq!(verdict.outcome.stdout, "no result in attempt 2 from shards 1/2\n");
        assert!(
            verdict
                .outcome
                .stderr
                .contains("hint: give this job `shard-result:"),
            "{}",
            verdict.outcome.stderr
        );
        assert_eq!(dealt.status("konverge/preview").as_deref(), Some("error"));
    }
    // "Re-run failed jobs": the other shard's job succeeded and was not started again.
    dealt.result = "success";
    dealt.job(100, "all/2").outcome.check(0);
    assert_eq!(dealt.status("konverge/preview").as_deref(), Some("success"));
}

/// Two runs of one commit, as when the base is changed: the older one's verdict comes while the newer is at work.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_verdict_says_nothing_over_a_newer_run() {
    const WHOLE: &str = "konverge/preview";
    let mut dealt = Dealt::begin("older").await;
    for (run, shard) in [(100, "1/2"), (101, "1/2"), (100, "2/2"), (101, "2/2")] {
        dealt.job(run, shard).outcome.check(0);
    }
    // Each of the two says that it is open; the older one not over the newer.
    assert_eq!(dealt.said(WHOLE), vec!["pending"; 2]);
    let older = dealt.job(100, "all/2");
    older.outcome.check(0);
    let stderr = &older.outcome.stderr;
    assert!(
        stderr.contains("note: a newer run has set the status of this commit"),
        "{stderr}"
    );
    assert_eq!(dealt.status(WHOLE).as_deref(), Some("pending"));
    // Nor is a share of the newer run taken for silent because the older one's spoke after it.
    dealt.job(100, "1/2").outcome.check(0);
    dealt.job(101, "all/2").outcome.check(0);
    assert_eq!(dealt.status(WHOLE).as_deref(), Some("success"));
}

/// The default branch's policy becomes stricter while the shares are at work, and looser again before the merge.
#[tokio::test(flavor = "multi_thread")]
async fn each_share_is_judged_by_the_policy_that_it_was_reviewed_under() {
    let mut dealt = Dealt::begin("ruled").await;
    let rule = |dealt: &Dealt, policy: &str| {
        dealt.stage.monorepo.checkout("main");
        dealt.stage.configure(policy);
        dealt.stage.monorepo.commit("A rule");
    };
    dealt.job(100, "1/2").outcome.check(0);
    rule(&dealt, "policy: {approvals: 1}\n");
    dealt.job(100, "2/2").outcome.check(0);
    rule(&dealt, "");
    let merged = dealt.stage.merge(7, "change");
    merged.outcome.check(3);
    let said = &merged.outcome.stdout;
    assert!(said.contains("policy.approvals: 0 of 1"), "{said}");
    let one = Some("one".to_owned());
    assert_eq!(dealt.values().await, [one.clone(), None, one]);
}

/// A stack that ended well holds all that was merged until then, also what no preview had shown of it. What is
/// previewed of that only later was before nobody's eyes when it was merged.
#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_comes_after_the_apply_agrees_to_nothing() {
    let mut dealt = Dealt::begin("late").await;
    let (payload, trial) = dealt.stage.opened(7, "change", "synchronize", "acme/konfig");
    dealt.job(100, "1/2").outcome.check(0);
    // The next one lies on top of it, and shows another value of `b`.
    dealt.stage.monorepo.checkout("change").branch("next");
    dealt.stage.stack("late-b/dev", &[("late-b-dev", "two")]);
    dealt.stage.monorepo.commit("next");
    dealt.stage.pull_request(8, "next", "opened").outcome.check(0);
    dealt.stage.press_merge(7, "change");
    dealt.stage.merge(8, "next").outcome.check(0);
    assert_eq!(dealt.stage.value("late-b-dev").await.as_deref(), Some("two"));

    dealt.stage.env = vec![
        ("KONVERGE_SHARD", "2/2".to_owned()),
        ("GITHUB_RUN_ID", "100".to_owned()),
    ];
    let late = dealt.stage.preview(7, &payload, &trial);
    late.outcome.check(0);
    assert!(late.summary.contains("late-b-dev"), "{}", late.summary);
    dealt.stage.env.clear();
    let stopped = dealt
        .stage
        .straight_to_main(|stage| stage.stack("late-b/dev", &[("late-b-dev", "one")]));
    stopped.outcome.check(3);
    assert_eq!(dealt.stage.value("late-b-dev").await.as_deref(), Some("two"));
}

/// Two shares that would create one object: whichever is previewed later sees it, and so does the verdict.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_object_in_two_shares_is_refused() {
    let mut dealt = Dealt::begin("collide").await;
    dealt.stage.monorepo.checkout("change");
    for id in &STACKS[..2] {
        dealt
            .stage
            .stack(&format!("collide-{id}"), &[("collide-both", "one")]);
    }
    dealt.stage.monorepo.commit("The same object");
    dealt.job(100, "1/2").outcome.check(0);
    let second = dealt.job(100, "2/2");
    second.outcome.check(1);
    let told = "stack `collide-a/dev` would create or adopt the same object";
    assert!(second.summary.contains(told), "{}", second.summary);
    dealt.job(100, "all/2").outcome.check(1);
    assert_eq!(dealt.status("konverge/preview").as_deref(), Some("failure"));
}
